package jobrouter

import (
	"encoding/json"
	"fmt"
)

// Fields of a job request.
const (
	fieldLastUpdate = "last_update"
	fieldSystem     = "system_id"
	fieldToken      = "token"
	fieldInfo       = "info"
	fieldFeatures   = "features" // of info
	fieldLabels     = "labels"   // of info
)

// ourSystem is the system_id of questions that we ask for no machine. GitLab keeps no
// job for a question without one.
const ourSystem = "s_spillway"

// everyRunner is what any GitLab Runner from 18.9 on can do, whatever its executor
// (network.getFeatures and shells.AbstractShell.GetFeatures in its sources). GitLab
// fails a job that needs what the asking runner doesn't have, so it must not be less.
var everyRunner = []string{
	"artifacts", "artifacts_exclude", "cache", "cancel_gracefully", "cancelable",
	"fallback_cache_keys", "job_inputs", "masking", "multi_build_steps", "raw_variables",
	"refspecs", "return_exit_code", "trace_checksum", "trace_reset", "trace_size",
	"two_phase_job_commit", "upload_multiple_artifacts", "upload_raw_artifacts", "variables",
	"vault_secrets",
}

// withLastUpdate is body with the newest last_update that we know: with it GitLab
// answers without looking into its queue while nothing has changed. Everything else
// stays as the runner sent it.
func withLastUpdate(body []byte, lastUpdate string) ([]byte, error) {
	if lastUpdate == "" {
		return body, nil
	}
	fields, err := readFields(body)
	if err != nil {
		return nil, err
	}
	return writeFields(fields, map[string]string{fieldLastUpdate: lastUpdate})
}

// forNobody is a question for a pool at zero: in the words of the machine that asked
// last, if one has, but with the features that every machine has, because it isn't known
// which one will come.
func forNobody(last []byte, token, lastUpdate string) ([]byte, error) {
	info := map[string]json.RawMessage{"name": json.RawMessage(`"spillway"`)}
	if fields, err := readFields(last); err == nil {
		if said, err := readFields(fields[fieldInfo]); err == nil {
			info = said
		}
	}
	declared := make(map[string]bool, len(everyRunner))
	for _, name := range everyRunner {
		declared[name] = true
	}
	features, err := json.Marshal(declared)
	if err != nil {
		return nil, fmt.Errorf("write a job request: %w", err)
	}
	info[fieldFeatures] = features
	delete(info, fieldLabels) // they name the other machine's instance
	text, err := json.Marshal(info)
	if err != nil {
		return nil, fmt.Errorf("write a job request: %w", err)
	}
	set := map[string]string{fieldToken: token, fieldSystem: ourSystem}
	if lastUpdate != "" {
		set[fieldLastUpdate] = lastUpdate
	}
	return writeFields(map[string]json.RawMessage{fieldInfo: text}, set)
}

func readFields(body []byte) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		return nil, fmt.Errorf("read a job request: it is no JSON object") // the cause could quote the token
	}
	return fields, nil
}

func writeFields(fields map[string]json.RawMessage, set map[string]string) ([]byte, error) {
	for name, value := range set {
		quoted, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("write a job request: %w", err)
		}
		fields[name] = quoted
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("write a job request: %w", err)
	}
	return body, nil
}
