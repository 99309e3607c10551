package main

import (
	"context"
	"os"
	"syscall"

	"nsbox/launcher"
	"nsbox/launcher/reason"
)

// chosen returns the runner that --backend, --trace and --plan ask for; without any
// it is run itself, and nothing is decided twice. A simulation says so on
// standard error whatever --quiet asks: its exit status alone would mislead.
func chosen(f execFlags, c *console, run runner) runner {
	if f.Backend == "" && f.Trace == "" {
		if f.Plan == "" {
			return run
		}
		return func(ctx context.Context, req launcher.Request, s launcher.Streams) launcher.Result {
			req.ExpectPlan = f.Plan
			return run(ctx, req, s)
		}
	}
	return func(ctx context.Context, req launcher.Request, s launcher.Streams) launcher.Result {
		b, err := launcher.BackendByName(f.Backend, launcher.Runner(run))
		if err != nil {
			return refusal(reasonOf(err))
		}
		if b.Name() == launcher.SimulatedName {
			defer c.note("%s: nothing was executed, delivered or enforced", launcher.SimulatedName)
		}
		var file *os.File
		if f.Trace != "" {
			// Opened before anything is decided: a run that cannot be traced is none.
			if file, err = traceFile(f.Trace); err != nil {
				return refusedBy(b, err)
			}
			defer file.Close()
		}
		d := launcher.Consider(b, req, nil)
		if f.Plan != "" && d.Verdict == launcher.VerdictRun && d.Digest != f.Plan {
			return refusedBy(b, reason.New(reason.PlanChanged, "the plan", "it is "+d.Digest+", not the one asked for", "look at nsbox plan again"))
		}
		req.ExpectPlan = d.Digest
		if file == nil {
			return launcher.Start(ctx, b, d, req, s)
		}
		t := launcher.NewTrace(file, d)
		if err := t.Err(); err != nil {
			return refusedBy(b, err)
		}
		req.Observe, req.Connection = t.Observe, t.Connection
		res := launcher.Start(ctx, b, d, req, s)
		t.Result(res)
		err = t.Err()
		if err == nil {
			if err = file.Sync(); err != nil {
				err = reason.Wrap(reason.TraceFile, f.Trace, "could not be made durable", "free space where it stands", err)
			}
		}
		if err != nil {
			res = failed(res, err)
		}
		return res
	}
}

func refusedBy(b launcher.Backend, err error) launcher.Result {
	res := refusal(reasonOf(err))
	res.Backend = b.Name()
	return res
}

// traceFile makes the file anew. It is written line by line while the run goes
// on, so it cannot be published in one step as a result is.
func traceFile(path string) (*os.File, error) {
	if err := publishable(reason.TraceFile, path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, reason.Wrap(reason.TraceFile, path, "cannot be written", "name a file in a directory you may write to", err)
	}
	return f, nil
}
