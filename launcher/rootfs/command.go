package rootfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"

	"nsbox/launcher/reason"
)

// shebangMax is how much of a script's first line the kernel reads (BINPRM_BUF_SIZE).
const shebangMax = 256

// lookup returns the host path of cmd as execvp would find it.
func (r place) lookup(cmd string, searchPath []string) (string, error) {
	switch {
	case cmd == "" || strings.IndexByte(cmd, 0) >= 0:
		return "", reason.New(reason.ProgramNotFound, "program name "+quote(cmd), "is empty or holds a NUL byte", "name a program after --")
	case path.IsAbs(cmd):
		return cmd, r.runnableFile(cmd)
	case strings.Contains(cmd, "/"):
		return "", reason.New(reason.ProgramNotFound, cmd, "is a relative path; the box has another working directory",
			"name the program alone or by its absolute path; a script given with --in is run by: -- python3 /in/NAME")
	}
	var first error
	for _, dir := range searchPath {
		p := path.Join(dir, cmd)
		err := r.runnableFile(p)
		if err == nil {
			return p, nil
		}
		// Like a shell: a file that cannot be run is passed over, but remembered.
		if first == nil && reason.Of(err).ID != reason.ProgramNotFound {
			first = err
		}
	}
	if first != nil {
		return "", first
	}
	next := "install it, or give its absolute path; the caller's PATH is not used"
	if near := r.similar(cmd, searchPath); near != "" {
		next = "did you mean " + near + "? Otherwise " + next
	}
	return "", reason.New(reason.ProgramNotFound, cmd, "is in none of "+strings.Join(searchPath, ", "), next)
}

// similar is a program that is there and that cmd may have meant: the same name
// with a 3, as python has on Debian, or with two neighbouring letters swapped.
func (r place) similar(cmd string, searchPath []string) string {
	names := []string{cmd + "3"}
	for i := 1; i < len(cmd) && len(cmd) <= maxName; i++ {
		names = append(names, cmd[:i-1]+string(cmd[i])+string(cmd[i-1])+cmd[i+1:])
	}
	for _, name := range names {
		for _, dir := range searchPath {
			if name != cmd && r.runnableFile(path.Join(dir, name)) == nil {
				return name
			}
		}
	}
	return ""
}

// none says that a program is not there.
func (r place) none() string {
	if r.dir == "" {
		return "there is no such program on this host"
	}
	return "there is no such program in the root at " + r.dir
}

func (r place) runnableFile(p string) error {
	fi, err := r.stat(p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return reason.Wrap(reason.ProgramNotFound, p, r.none(),
			"give the path of a program that is there; a script given with --in is run by: -- python3 /in/NAME", err)
	case err != nil:
		return reason.Wrap(reason.ProgramNotExecutable, p, "it cannot be looked at", "check the permissions of the directories above it", err)
	case !fi.Mode().IsRegular():
		return reason.New(reason.ProgramNotExecutable, p, "is not a regular file", "name a program")
	case fi.Mode()&0o111 == 0:
		return reason.New(reason.ProgramNotExecutable, p, "has no execute permission", "start it through its interpreter, or chmod +x "+p)
	}
	return nil
}

// shebang is the first line of a script.
type shebang struct {
	interpreter string
	arg         string // everything after the interpreter, one argument as in the kernel
}

// readShebang returns nil for a file that does not begin with "#!".
func (r place) readShebang(p string) (*shebang, error) {
	f, err := r.open(p)
	if err != nil {
		return nil, reason.Wrap(reason.ProgramNotExecutable, p, "it cannot be read", "make it readable for the user that runs nsbox", err)
	}
	defer f.Close()
	buf := make([]byte, shebangMax)
	n, err := io.ReadFull(f, buf)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, reason.Wrap(reason.ProgramNotExecutable, p, "it cannot be read", "check the file", err)
	}
	return parseShebang(p, buf[:n])
}

func parseShebang(p string, head []byte) (*shebang, error) {
	rest, ok := bytes.CutPrefix(head, []byte("#!"))
	if !ok {
		return nil, nil
	}
	line, _, ended := bytes.Cut(rest, []byte("\n"))
	if !ended && len(head) == shebangMax {
		return nil, reason.New(reason.ProgramNotExecutable, p, `its "#!" line is longer than 255 bytes; the kernel would cut it`, "shorten the line")
	}
	if bytes.HasSuffix(line, []byte("\r")) {
		return nil, reason.New(reason.InterpreterMissing, p, `its "#!" line ends in a carriage return, which is part of the interpreter's name`,
			"convert the script to Unix line ends")
	}
	s := strings.Trim(string(line), " \t")
	i := strings.IndexAny(s, " \t")
	if i < 0 {
		i = len(s)
	}
	out := &shebang{interpreter: s[:i], arg: strings.Trim(s[i:], " \t")}
	if !path.IsAbs(out.interpreter) || strings.IndexByte(s, 0) >= 0 {
		return nil, reason.New(reason.InterpreterMissing, p, `its "#!" line names the interpreter `+quote(out.interpreter)+`, which is no absolute path`,
			"write the interpreter's absolute path")
	}
	return out, nil
}

// command returns what to execute instead of the script. The launcher splits
// the line, not the kernel inside, so that env is never needed in the box.
func (s *shebang) command(r place, script string, searchPath []string) (program string, args []string, err error) {
	program = s.interpreter
	if s.arg != "" {
		args = []string{s.arg}
	}
	if path.Base(s.interpreter) == "env" {
		words, ok := envWords(s.arg)
		if !ok {
			return "", nil, reason.New(reason.InterpreterMissing, script, `its "#!" line uses env with `+quote(s.arg)+`, which nsbox does not interpret`,
				`write "#!/usr/bin/env NAME", "#!/usr/bin/env -S NAME ARG…" or the interpreter's absolute path`)
		}
		program, args = words[0], words[1:]
	}
	found, err := r.lookup(program, searchPath)
	if err != nil {
		return "", nil, reason.Wrap(reason.InterpreterMissing, script, "its interpreter "+quote(program)+" cannot be run",
			"install the interpreter, or correct the script's first line", err)
	}
	inner, err := r.readShebang(found)
	if err != nil {
		return "", nil, err
	}
	if inner != nil {
		return "", nil, reason.New(reason.InterpreterMissing, script, "its interpreter "+found+" is itself a script",
			"name an interpreter that is an ELF program")
	}
	return found, append(args, script), nil
}

// envWords reads "NAME" and "-S NAME ARG…" without quoting, variables or
// assignments; anything else is not understood.
func envWords(arg string) ([]string, bool) {
	words := strings.Fields(arg)
	split := len(words) > 0 && (words[0] == "-S" || words[0] == "--split-string")
	if split {
		words = words[1:]
	}
	if len(words) == 0 || (!split && len(words) > 1) || strings.ContainsAny(arg, `"'\$#`) {
		return nil, false
	}
	return words, !strings.HasPrefix(words[0], "-") && !strings.Contains(words[0], "=")
}
