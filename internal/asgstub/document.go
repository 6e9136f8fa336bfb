package asgstub

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"time"
)

// The protocols whose requests and answers are documents.
const (
	targetSQS = "AmazonSQS."
	targetCW  = "GraniteServiceVersion20100801."
	cborPath  = "/service/GraniteServiceVersion20100801/operation/"
)

// jsonWire: https://smithy.io/2.0/aws/protocols/aws-json-1_0-protocol.html
type jsonWire struct{}

func (jsonWire) answer(w http.ResponseWriter, x *exchange, f *failure) {
	status := x.document(w, f)
	body, err := json.Marshal(plain(x.out))
	must(err)
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// cborWire: https://smithy.io/2.0/additional-specs/protocols/smithy-rpc-v2.html
type cborWire struct{}

func (cborWire) answer(w http.ResponseWriter, x *exchange, f *failure) {
	status := x.document(w, f)
	w.Header().Set("Content-Type", "application/cbor")
	w.Header().Set("Smithy-Protocol", "rpc-v2-cbor")
	w.WriteHeader(status)
	_, _ = w.Write(appendCBOR(nil, x.out))
}

// shapes are the names of the errors in the models, by namespace; where a code of
// the Query API has another name, the old one goes into a header:
// https://smithy.io/2.0/aws/protocols/aws-query-protocol.html#querycompatible-trait
var shapes = map[string]string{serviceSQS: "com.amazonaws.sqs#", serviceCW: "com.amazonaws.cloudwatch#"}

// document makes x.out what is answered, and returns the status.
func (x *exchange) document(w http.ResponseWriter, f *failure) int {
	if x.out == nil {
		x.out = map[string]any{}
	}
	if f == nil {
		return http.StatusOK
	}
	x.out = map[string]any{"__type": shapes[x.service] + f.code, "message": f.message}
	w.Header().Set("X-Amzn-Query-Error", cmp.Or(queryCodes[f.code], f.code)+";"+blame(f.status))
	return f.status
}

// queryCodes are the codes of the Query API for SQS's errors.
var queryCodes = map[string]string{codeNoQueue: "AWS.SimpleQueueService.NonExistentQueue"}

// plain is a document with times as JSON has them: seconds since 1970.
func plain(v any) any {
	switch v := v.(type) {
	case time.Time:
		return float64(v.UnixMilli()) / 1000
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = plain(e)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = plain(e)
		}
		return out
	}
	return v
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

func (x *exchange) readJSON(body []byte) *failure {
	if err := json.Unmarshal(body, &x.in); err != nil {
		return &failure{code: "SerializationException", message: "the body is not a JSON object", status: 400}
	}
	return nil
}

func (x *exchange) readCBOR(r *http.Request, body []byte) *failure {
	if r.Header.Get("Smithy-Protocol") != "rpc-v2-cbor" {
		return &failure{code: "SerializationException", message: "the header smithy-protocol is missing", status: 400}
	}
	v, err := readCBOR(body)
	in, ok := v.(map[string]any)
	if err != nil || !ok {
		return &failure{code: "SerializationException", message: "the body is not a CBOR map", status: 400}
	}
	x.in = in
	return nil
}

// fields are the members of a document. As with params, the first mistake is kept
// and what nobody asked for is an error.
type fields struct {
	in   map[string]any
	at   string
	used map[string]bool
	err  *failure
}

func fieldsOf(v any, at string) *fields {
	f := &fields{at: at, used: make(map[string]bool)}
	var ok bool
	if f.in, ok = v.(map[string]any); !ok {
		f.fail("%s is not a structure", at)
	}
	return f
}

func (f *fields) fail(format string, args ...any) {
	if f.err == nil {
		f.err = &failure{code: "InvalidParameterValue", message: fmt.Sprintf(format, args...), status: 400}
	}
}

func (f *fields) done() error {
	if f.err != nil {
		return f.err
	}
	for _, key := range sortedKeys(f.in) {
		if !f.used[key] {
			f.fail("the stand-in does not know the member %s%s", f.at, key)
			return f.err
		}
	}
	return nil
}

// member is a member of the type T, or otherwise where there is none.
func member[T any](f *fields, key string, otherwise T) T {
	f.used[key] = true
	v, ok := f.in[key]
	if !ok || v == nil {
		return otherwise
	}
	out, ok := v.(T)
	if !ok {
		f.fail("%s%s has the wrong type", f.at, key)
		return otherwise
	}
	return out
}

func (f *fields) text(key string) string { return member(f, key, "") }

func (f *fields) need(key string) string {
	s := f.text(key)
	if s == "" && f.err == nil {
		f.err = &failure{code: "MissingParameter", message: "The request must contain the parameter " + f.at + key + ".", status: 400}
	}
	return s
}

// int is a whole number from low to high.
func (f *fields) int(key string, otherwise, low, high int) int {
	n := member(f, key, float64(otherwise))
	if n != math.Trunc(n) || n < float64(low) || n > float64(high) {
		f.fail("Value %v for parameter %s%s is invalid. Reason: Must be between %d and %d, if provided.", n, f.at, key, low, high)
		return otherwise
	}
	return int(n)
}

// time is a moment, sent as seconds since 1970.
func (f *fields) time(key string) time.Time {
	s := member(f, key, math.NaN())
	if math.IsNaN(s) {
		f.fail("The parameter %s%s is required.", f.at, key)
		return time.Time{}
	}
	return time.UnixMilli(int64(math.Round(s * 1000))).UTC()
}

func (f *fields) texts(key string) (out []string) {
	for _, v := range member(f, key, []any(nil)) {
		s, ok := v.(string)
		if !ok {
			f.fail("%s%s has the wrong type", f.at, key)
		}
		out = append(out, s)
	}
	return out
}
