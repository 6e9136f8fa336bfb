package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// config is plugin_config, as far as the stand-in reads it.
type config struct {
	Cloud string `json:"cloud"` // path of the cloud's file
	Max   int    `json:"max"`
}

// cloud is the content of the cloud's file. Each Update is a moment of it: what is
// creating runs in the next, what is deleting is deleted in the next and gone after.
type cloud struct {
	Trees   []tree `json:"trees"`
	Planted int    `json:"planted"` // ever
	Calls   int    `json:"calls"`   // of Increase that were carried out
	Inits   int    `json:"inits"`
	Hangs   int    `json:"hangs"` // calls that hung
	Faults  faults `json:"faults"`
}

type tree struct {
	ID    string `json:"id"`
	Phase string `json:"phase"` // in the words of the fleeting library
	Lag   int    `json:"lag"`   // updates until it is listed
}

// faults are what shall go wrong.
type faults struct {
	CrashIn   string `json:"crash_in,omitempty"`   // a method; once
	CrashLate bool   `json:"crash_late,omitempty"` // after it was carried out
	HangIn    string `json:"hang_in,omitempty"`    // a method
	FailIn    string `json:"fail_in,omitempty"`    // a method
	FailWith  string `json:"fail_with,omitempty"`  // the text
	Lag       int    `json:"lag,omitempty"`        // of what is planted from now on
	TakeFewer int    `json:"take_fewer,omitempty"` // of what Increase asks for
	FellOne   bool   `json:"fell_one,omitempty"`   // Decrease takes the first only, with an error
	Stuck     bool   `json:"stuck,omitempty"`      // Decrease takes all and nothing comes of it
	Sick      string `json:"sick,omitempty"`       // a tree whose heartbeat fails
}

func (c *config) load() (*cloud, error) {
	data, err := os.ReadFile(c.Cloud)
	if err != nil {
		return nil, err
	}
	in := new(cloud)
	return in, json.Unmarshal(data, in)
}

// save replaces the file at once, so that a test never reads half of one.
func (c *config) save(in *cloud) error {
	data, err := json.MarshalIndent(in, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.Cloud+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(c.Cloud+".new", c.Cloud)
}

// look lists what is there and moves on.
func (in *cloud) look() []tree {
	var listed, next []tree
	for _, t := range in.Trees {
		if t.Lag > 0 {
			t.Lag--
			next = append(next, t)
			continue
		}
		listed = append(listed, t)
		switch t.Phase {
		case "creating":
			t.Phase = "running"
		case "deleting":
			t.Phase = "deleted"
		case "deleted":
			continue
		}
		next = append(next, t)
	}
	in.Trees = next
	return listed
}

func (in *cloud) plant(n int) int {
	n = max(0, n-in.Faults.TakeFewer)
	for range n {
		in.Planted++
		in.Trees = append(in.Trees, tree{ID: fmt.Sprintf("tree-%d", in.Planted), Phase: "creating", Lag: in.Faults.Lag})
	}
	in.Calls++
	return n
}

func (in *cloud) fell(ids []string) (felled []string) {
	for _, id := range ids {
		for i := range in.Trees {
			if t := &in.Trees[i]; t.ID == id && (t.Phase == "creating" || t.Phase == "running") {
				if !in.Faults.Stuck {
					t.Phase = "deleting"
				}
				felled = append(felled, id)
			}
		}
		if in.Faults.FellOne {
			break
		}
	}
	return felled
}

// hang is longer than any deadline.
const hang = time.Hour
