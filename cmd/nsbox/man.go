package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"nsbox/launcher/reason"
)

type manFlags struct {
	Command string `arg:"" optional:"" name:"COMMAND"`
	Dir     string
}

func manWording(texts map[string]words) {
	texts["man"] = words{help: "Print or write the manual pages, made of what --help says."}
	texts["man COMMAND"] = words{help: "The command whose page to print, such as exec; without it nsbox(1) itself."}
	texts["man --dir"] = words{value: "DIR", help: "Write all pages into this directory instead."}
}

const manUsage = "nsbox man [COMMAND | --dir DIR]"

func manDetails() string {
	return `
Examples:
  nsbox man exec | man -l -
  sudo nsbox man --dir /usr/local/share/man/man1
`
}

// showMan prints one page, or writes all of them.
func showMan(c *console, f manFlags) error {
	parser, err := kong.New(&grammar{}, kong.Name("nsbox"))
	if err != nil {
		return err
	}
	top := parser.Model.Node
	dress(top, "", wording())
	if f.Dir == "" {
		at := top
		if f.Command != "" {
			if at = child(top, f.Command); at == nil {
				return reason.New(reason.Usage, "COMMAND", quotedWord(f.Command)+" is no command", "nsbox --help lists them")
			}
		}
		c.text(manPage(top, at))
		return nil
	}
	for _, at := range append([]*kong.Node{top}, top.Children...) {
		name := filepath.Join(f.Dir, manName(top, at)+".1")
		if err := os.WriteFile(name, []byte(manPage(top, at)), 0o644); err != nil {
			return reason.Wrap(reason.OutputFile, name, "cannot be written", "name a directory of your own: nsbox man --dir DIR", err)
		}
	}
	return nil
}

func manName(top, at *kong.Node) string {
	if at == top {
		return "nsbox"
	}
	return "nsbox-" + at.Name
}

// manPage is a page in the language of man(7): NAME, SYNOPSIS, COMMANDS or
// OPTIONS, and what help says below them as it stands there.
func manPage(top, at *kong.Node) string {
	texts := helpTextsOf()
	var b strings.Builder
	name := manName(top, at)
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"nsbox %s\"\n.SH NAME\n", strings.ToUpper(name), roff(version))
	about := strings.TrimSuffix(at.Help, ".")
	if at == top {
		about = "run an untrusted program in a box of Linux namespaces"
	}
	fmt.Fprintf(&b, "%s \\- %s\n.SH SYNOPSIS\n", roff(name), roff(about))
	b.WriteString(preformatted(synopsis(texts, at, "")))
	if len(at.Children) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, n := range at.Children {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(n.Name), prose(n.Help))
			if at != top {
				manOptions(&b, n)
			}
		}
	}
	if slices.ContainsFunc(at.Flags, func(f *kong.Flag) bool { return f.Name != "help" }) || len(at.Positional) > 0 {
		b.WriteString(".SH OPTIONS\n")
		manOptions(&b, at)
	}
	if details := texts.details[pathOf(at, top)]; details != nil && strings.TrimSpace(details()) != "" {
		b.WriteString(".SH NOTES\n" + preformatted(strings.Trim(details(), "\n")))
	}
	if at == top {
		b.WriteString(".SH \"SEE ALSO\"\n")
		for i, n := range top.Children {
			fmt.Fprintf(&b, ".BR %s (1)%s\n", roff("nsbox-"+n.Name), map[bool]string{true: "", false: ","}[i == len(top.Children)-1])
		}
	} else {
		b.WriteString(".SH \"SEE ALSO\"\n.BR nsbox (1)\n")
	}
	return b.String()
}

func pathOf(at, top *kong.Node) string {
	if at == top {
		return ""
	}
	return at.Name
}

// synopsis is a command's usage line, and those of the commands below it.
func synopsis(texts helpTexts, at *kong.Node, before string) string {
	path := ""
	if at.Type == kong.CommandNode {
		path = strings.TrimSpace(before + " " + at.Name)
	}
	text := texts.usage[path]
	if path == "" {
		return text
	}
	for _, n := range at.Children {
		text += "\n" + synopsis(texts, n, path)
	}
	return text
}

func manOptions(b *strings.Builder, at *kong.Node) {
	for _, p := range at.Positional {
		fmt.Fprintf(b, ".TP\n.I %s\n%s\n", roff(p.Name), prose(p.Help))
	}
	for _, f := range at.Flags {
		if f.Name == "help" {
			continue
		}
		flag := "\\-\\-" + roff(f.Name)
		if f.Short != 0 {
			flag = "\\-" + string(f.Short) + ", " + flag
		}
		if !f.IsBool() {
			flag += "=" + roff(f.FormatPlaceHolder())
		}
		fmt.Fprintf(b, ".TP\n.B \"%s\"\n%s\n", flag, prose(f.Help))
	}
}

// preformatted keeps lines as they are.
func preformatted(text string) string {
	var b strings.Builder
	b.WriteString(".nf\n")
	for _, line := range strings.Split(text, "\n") {
		if line == "" {
			line = ".sp"
		} else {
			line = roff(line)
		}
		b.WriteString(line + "\n")
	}
	b.WriteString(".fi\n")
	return b.String()
}

// prose breaks text into lines, as troff's source is written.
func prose(text string) string {
	lines := wrap(text, helpWidth-8)
	for i, l := range lines {
		lines[i] = roff(l)
	}
	return strings.Join(lines, "\n")
}

// roff is text that troff takes as itself: no escapes, no requests, and hyphens
// that can be copied into a shell.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}
