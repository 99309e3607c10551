package network

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
)

// Requests that may come before the start-up message of the PostgreSQL protocol 3.0.
const (
	askTLS    = 80877103
	askGSS    = 80877104
	textOID   = 25
	maxPacket = 1 << 16
)

// answers is a database as far as psql needs one: TLS, nobody has to say who they
// are, and every query has the same answer. begun is told of each session.
func answers(config *tls.Config, begun func(net.Conn)) func(net.Conn) {
	return func(c net.Conn) {
		for {
			first, err := packet(c)
			if err != nil || len(first) < 4 {
				return
			}
			switch binary.BigEndian.Uint32(first) {
			case askGSS:
				c.Write([]byte("N"))
			case askTLS:
				c.Write([]byte("S"))
				over(config, func(s net.Conn) {
					if _, err := packet(s); err == nil {
						begun(c)
						session(s)
					}
				})(c)
				return
			default:
				return // nobody comes without TLS
			}
		}
	}
}

// session is what follows the start-up message.
func session(c net.Conn) {
	say(c, 'R', make([]byte, 4)) // welcome
	say(c, 'S', []byte("client_encoding\x00UTF8\x00"))
	say(c, 'S', []byte("server_version\x0015.0\x00"))
	say(c, 'Z', []byte("I"))
	kind := make([]byte, 1)
	for {
		if _, err := io.ReadFull(c, kind); err != nil || kind[0] != 'Q' {
			return
		}
		if _, err := packet(c); err != nil {
			return
		}
		column := append([]byte("\x00\x01answer\x00"), make([]byte, 18)...)
		binary.BigEndian.PutUint32(column[len(column)-12:], textOID)
		say(c, 'T', column)
		say(c, 'D', []byte("\x00\x01\x00\x00\x00\x07reached"))
		say(c, 'C', []byte("SELECT 1\x00"))
		say(c, 'Z', []byte("I"))
	}
}

// packet reads a length, which counts itself, and the rest.
func packet(c net.Conn) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < 4 || n > maxPacket {
		return nil, io.ErrUnexpectedEOF
	}
	body := make([]byte, n-4)
	_, err := io.ReadFull(c, body)
	return body, err
}

func say(c net.Conn, kind byte, body []byte) {
	c.Write(append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(4+len(body))), body...))
}
