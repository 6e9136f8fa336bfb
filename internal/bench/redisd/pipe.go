package redisd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// pipeTimeout bounds one flush: a benchmark must end.
const pipeTimeout = 60 * time.Second

// Pipe sends commands in batches on one connection. It is not safe for concurrent
// use.
type Pipe struct {
	conn    net.Conn
	out     []byte
	in      *bufio.Reader
	pending int // commands that are queued
}

// Dial connects to a server.
func Dial(addr string) (*Pipe, error) {
	conn, err := net.DialTimeout("tcp", addr, startTimeout)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	return &Pipe{conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}, nil
}

// Close ends the connection.
func (p *Pipe) Close() error { return p.conn.Close() }

// Queue adds a command to the batch.
func (p *Pipe) Queue(args ...string) {
	p.out = appendHead(p.out, '*', len(args))
	for _, a := range args {
		p.out = appendHead(p.out, '$', len(a))
		p.out = append(append(p.out, a...), '\r', '\n')
	}
	p.pending++
}

func appendHead(b []byte, kind byte, n int) []byte {
	return append(strconv.AppendInt(append(b, kind), int64(n), 10), '\r', '\n')
}

// Flush sends the batch and reads all its answers. It returns the sum of those that
// are numbers.
func (p *Pipe) Flush() (sum int64, err error) {
	if err := p.send(); err != nil {
		return 0, err
	}
	for ; p.pending > 0; p.pending-- {
		r, err := p.reply()
		if err != nil {
			return sum, err
		}
		sum += r.number
	}
	return sum, nil
}

// Ask sends one command and returns its answer as text.
func (p *Pipe) Ask(args ...string) (string, error) {
	p.Queue(args...)
	if err := p.send(); err != nil {
		return "", err
	}
	p.pending--
	r, err := p.reply()
	return r.text, err
}

func (p *Pipe) send() error {
	if err := p.conn.SetDeadline(time.Now().Add(pipeTimeout)); err != nil {
		return err
	}
	_, err := p.conn.Write(p.out)
	p.out = p.out[:0]
	return err
}

// reply is one answer; of a list, the sum of its numbers.
type reply struct {
	text   string
	number int64
}

func (p *Pipe) reply() (reply, error) {
	line, err := p.in.ReadSlice('\n')
	if err != nil {
		return reply{}, err
	}
	if len(line) < 3 {
		return reply{}, io.ErrUnexpectedEOF
	}
	kind, body := line[0], line[1:len(line)-2]
	switch kind {
	case ':':
		return reply{number: atoi(body)}, nil
	case '+':
		return reply{text: string(body)}, nil
	case '-':
		return reply{}, errors.New("redis: " + string(body))
	case '$':
		return p.bulk(atoi(body))
	case '*':
		return p.list(atoi(body))
	default:
		return reply{}, fmt.Errorf("redis: an answer of kind %q", kind)
	}
}

func (p *Pipe) bulk(n int64) (reply, error) {
	if n < 0 {
		return reply{}, nil
	}
	body := make([]byte, n+2)
	if _, err := io.ReadFull(p.in, body); err != nil {
		return reply{}, err
	}
	return reply{text: string(body[:n])}, nil
}

func (p *Pipe) list(n int64) (reply, error) {
	var all reply
	for range n {
		r, err := p.reply()
		if err != nil {
			return reply{}, err
		}
		all.number += r.number
	}
	return all, nil
}

// atoi is strconv.Atoi for bytes that a server has sent, without a copy.
func atoi(b []byte) int64 {
	var n int64
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	for _, c := range b {
		n = 10*n + int64(c-'0')
	}
	if negative {
		return -n
	}
	return n
}
