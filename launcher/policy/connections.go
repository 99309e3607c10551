package policy

import (
	"strconv"

	"nsbox/launcher/reason"
)

// connectionRow is one bound of network.connections. Its row's quantities are
// those of --limit: nanoseconds where the policy counts seconds.
type connectionRow struct {
	resourceRow
	of func(*Connections) *int
}

// quantum is what the policy's own number counts in the row's quantities.
func (row *connectionRow) quantum() int64 {
	if isTime(row.unit) {
		return second
	}
	return 1
}

// connectionRows lists the bounds in the document's order.
func connectionRows() []connectionRow {
	row := func(key, unit string, max int64, limit, example string, of func(*Connections) *int) connectionRow {
		r := connectionRow{resourceRow{key: key, unit: unit, min: 1, max: max, step: 1, limit: limit, example: example}, of}
		if isTime(unit) {
			r.min, r.max, r.step = second, max*second, second
		}
		return r
	}
	return []connectionRow{
		row("at_once", "connections", 256, "network.at_once", "4", func(c *Connections) *int { return &c.AtOnce }),
		row("in_total", "connections", 1<<20, "network.connections", "100", func(c *Connections) *int { return &c.InTotal }),
		row("bytes_out", "bytes", 1<<44, "network.bytes_out", "1M", func(c *Connections) *int { return &c.BytesOut }),
		row("bytes_in", "bytes", 1<<44, "network.bytes_in", "100M", func(c *Connections) *int { return &c.BytesIn }),
		row("seconds", "seconds", 86400, "network.time", "60s", func(c *Connections) *int { return &c.Seconds }),
		row("dial_seconds", "seconds", 120, "network.dial_time", "5s", func(c *Connections) *int { return &c.DialSeconds }),
	}
}

// connections holds each bound to what can be counted and waited for.
func (d *decoder) connections(c *Connections) {
	if c == nil {
		return
	}
	for _, row := range connectionRows() {
		have, max := *row.of(c), row.max/row.quantum()
		if key := "network.connections." + row.key; d.sound("network.connections", key) && (have < 1 || int64(have) > max) {
			d.tell(reason.PolicyInvalid, key, strconv.Itoa(have)+" is out of range", "write a number from 1 to "+strconv.FormatInt(max, 10))
		}
	}
}

// ConnectionLimitNames lists the names of --limit that only a policy with
// destinations takes.
func ConnectionLimitNames() []LimitName {
	var names []LimitName
	for _, row := range connectionRows() {
		names = append(names, LimitName{row.limit, "network.connections." + row.key, row.want(), row.limit + "=" + row.example})
	}
	return names
}

// tightenConnection lowers the bound that a name of --limit stands for.
func (p *Policy) tightenConnection(name, value string) *Fault {
	var names []string
	for _, row := range connectionRows() {
		names = append(names, row.limit)
		if row.limit != name {
			continue
		}
		n, err := row.read(value)
		if err != nil {
			return row.unreadable(err)
		}
		if len(p.Network.AllowedDestinations) == 0 {
			return &Fault{ID: reason.LimitUnknown, What: "bounds connections, and the policy lists no destination", Next: "leave it out, or list a destination in the policy"}
		}
		c := p.ConnectionLimits()
		bound := row.of(&c)
		if fault := row.mayBe(n, int64(*bound)*row.quantum()); fault != nil {
			return fault
		}
		*bound = int(n / row.quantum())
		p.Network.Connections = &c
		return nil
	}
	return unknownLimit(name, names)
}
