// Command docsite makes the documentation a site: folders of plain HTML with a search
// of their own, that open from a disk without a server and ask no network for anything.
//
// The pages are docs/ and what docs/site.yaml names besides, in its order; the settings,
// the metrics and the commands are asked of the code. Whatever would make a reader
// stumble is an error: a link or an anchor that leads nowhere, a page that nothing leads
// to, an image that none shows. No program links this package.
package main
