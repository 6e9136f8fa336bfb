// The search: over spillwayIndex, in this page, with no request to anybody.
"use strict";
(() => {
  const maxResults = 20;
  const maxExcerpt = 160; // characters
  const top = document.body.dataset.top;
  const form = document.getElementById("search");
  const query = document.getElementById("query");
  const results = document.getElementById("results");
  const count = document.getElementById("count");
  const list = document.getElementById("found");
  const index = spillwayIndex.map((e) => ({
    ...e, h: e.h || "", page: e.p.toLowerCase(), heading: (e.h || "").toLowerCase(), text: e.t.toLowerCase(),
  }));

  // starts is whether a word of the text begins with it.
  function starts(text, word) {
    for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1)) {
      if (at === 0 || !/[\p{L}\p{N}]/u.test(text[at - 1])) return true;
    }
    return false;
  }

  // score is how well an entry answers; 0: it lacks one of the words.
  function score(entry, words, phrase) {
    let sum = 0;
    for (const word of words) {
      let points = 0;
      if (entry.heading.includes(word)) points += starts(entry.heading, word) ? 12 : 6;
      if (entry.page.includes(word)) points += entry.h ? 3 : starts(entry.page, word) ? 14 : 7;
      if (entry.text.includes(word)) points += starts(entry.text, word) ? 4 : 1;
      if (points === 0) return 0;
      sum += points;
    }
    if (entry.heading === phrase || (!entry.h && entry.page === phrase)) sum += 20;
    if (words.length > 1 && entry.text.includes(phrase)) sum += 6;
    return sum;
  }

  function find(phrase) {
    const words = phrase.split(/\s+/).filter(Boolean);
    if (words.length === 0) return [];
    return index
      .map((entry) => ({ entry, score: score(entry, words, phrase), words }))
      .filter((r) => r.score > 0)
      .sort((a, b) => b.score - a.score);
  }

  // excerpt is the text around the first word, with the words marked.
  function excerpt(entry, words) {
    const part = document.createElement("span");
    const places = words.map((w) => entry.text.indexOf(w)).filter((at) => at >= 0);
    const around = Math.min(...(places.length ? places : [0])) - 40;
    const from = around > 0 ? entry.t.indexOf(" ", around) + 1 : 0; // where a word begins
    let rest = (from > 0 ? "…" : "") + entry.t.slice(from, from + maxExcerpt) + (entry.t.length > from + maxExcerpt ? "…" : "");
    while (rest) {
      const lower = rest.toLowerCase();
      let at = -1, length = 0;
      for (const word of words) {
        const here = lower.indexOf(word);
        if (here >= 0 && (at < 0 || here < at)) [at, length] = [here, word.length];
      }
      if (at < 0) break;
      const mark = document.createElement("mark");
      mark.textContent = rest.slice(at, at + length);
      part.append(rest.slice(0, at), mark);
      rest = rest.slice(at + length);
    }
    part.append(rest);
    return part;
  }

  function show() {
    const phrase = query.value.trim().toLowerCase();
    const all = find(phrase);
    list.replaceChildren(...all.slice(0, maxResults).map(({ entry, words }) => {
      const item = document.createElement("li");
      const link = document.createElement("a");
      const title = document.createElement("strong");
      title.textContent = entry.h ? entry.p + " › " + entry.h : entry.p;
      link.href = top + entry.u;
      link.append(title, excerpt(entry, words));
      item.append(link);
      return item;
    }));
    const more = all.length > maxResults ? ", the first " + maxResults + " are shown" : "";
    count.textContent = all.length === 0 ? "Nothing has all of these words." : all.length === 1 ? "1 result" : all.length + " results" + more;
    results.hidden = phrase === "";
  }

  function close() {
    results.hidden = true;
  }

  query.addEventListener("input", show);
  query.addEventListener("focus", () => { if (query.value.trim()) show(); });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const first = list.querySelector("a");
    if (first && !results.hidden) first.click();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      close();
      query.focus();
    }
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const links = [...list.querySelectorAll("a")];
    const next = links.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
    event.preventDefault();
    (next < 0 ? query : links[Math.min(next, links.length - 1)] || query).focus();
  });
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      query.focus();
    }
  });
  document.addEventListener("click", (event) => { if (!form.contains(event.target)) close(); });
  list.addEventListener("click", close);
  form.hidden = false;
})();
