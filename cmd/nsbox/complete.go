package main

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"nsbox/launcher"
	"nsbox/launcher/policy"
	"nsbox/launcher/reason"
)

// completeName is what the shells' scripts ask with: nsbox complete-words WORD...,
// of which the last is the one that is being typed. It is in no help.
const completeName = "complete-words"

// What a script may add to the candidates: names of files, directories or programs.
const (
	addFiles    = ":files"
	addDirs     = ":dirs"
	addPrograms = ":programs"
)

// completions answers a script: candidates one a line, each with a tab and a word
// of explanation where there is one, and lines that begin with a colon. Nothing
// here fails: whoever types a wrong line gets no candidates.
func completions(words []string) []string {
	if len(words) == 0 {
		return nil
	}
	before, last := words[:len(words)-1], words[len(words)-1]
	parser, err := kong.New(&grammar{}, kong.Name("nsbox"))
	if err != nil {
		return nil
	}
	dress(parser.Model.Node, "", wording())
	at, stateDir, arg := parser.Model.Node, "", 0
	var open *kong.Flag // whose value comes next
	for _, w := range before {
		switch {
		case open != nil:
			if open.Name == "state-dir" {
				stateDir = w
			}
			open = nil
		case w == "--" && (at.Name == "exec" || at.Name == "shell" || at.Name == "plan"):
			if w == before[len(before)-1] {
				return []string{addPrograms}
			}
			return []string{addFiles}
		case strings.HasPrefix(w, "-"):
			if f := flagOf(at, w); f != nil && !f.IsBool() && !strings.Contains(w, "=") {
				open = f
			}
		case child(at, w) != nil:
			at = child(at, w)
		default:
			arg++
		}
	}
	name, value, joined := strings.Cut(last, "=")
	switch {
	case open != nil:
		return matching(valuesOf(open.Name, last), last)
	case joined && strings.HasPrefix(name, "--"):
		if f := flagOf(at, name); f != nil && !f.IsBool() {
			var out []string
			for _, v := range valuesOf(f.Name, value) {
				if !strings.HasPrefix(v, ":") {
					v = name + "=" + v
				}
				out = append(out, v)
			}
			return matching(out, last)
		}
		return nil
	case strings.HasPrefix(last, "-"):
		return matching(flagsOf(at), last)
	}
	var out []string
	for _, c := range at.Children {
		out = append(out, c.Name+"\t"+c.Help)
	}
	if arg < len(at.Positional) {
		out = append(out, argumentsOf(at.Positional[arg].Name, stateDir)...)
	}
	return matching(out, last)
}

func child(at *kong.Node, name string) *kong.Node {
	if i := slices.IndexFunc(at.Children, func(c *kong.Node) bool { return c.Name == name }); i >= 0 {
		return at.Children[i]
	}
	return nil
}

func flagOf(at *kong.Node, word string) *kong.Flag {
	name, _, _ := strings.Cut(word, "=")
	for _, f := range at.Flags {
		if name == "--"+f.Name || f.Short != 0 && name == "-"+string(f.Short) {
			return f
		}
	}
	return nil
}

func flagsOf(at *kong.Node) []string {
	out := []string{"--help\tShow help."}
	for _, f := range at.Flags {
		if f.Name != "help" {
			out = append(out, "--"+f.Name+"\t"+f.Help)
		}
	}
	return out
}

// valuesOf are the values that a flag may take; typed is what stands there already.
func valuesOf(flag, typed string) []string {
	switch flag {
	case "policy":
		return append(policy.Presets(), addFiles)
	case "backend":
		return []string{"namespaces", "simulated"}
	case "limit":
		var keys []string
		for _, l := range policy.LimitNames() {
			keys = append(keys, l.Name+"=\t"+l.Value)
		}
		return listed(keys, typed)
	case "allow-degraded":
		return listed(policy.Dimensions(), typed)
	case "deliver", "state-dir", "rootfs-add", "cgroup", "dir":
		return []string{addDirs}
	case "wait", "older-than":
		return nil
	}
	return []string{addFiles}
}

// listed are the values of a comma-separated list, behind what is there of it.
func listed(values []string, typed string) []string {
	before := typed[:strings.LastIndex(typed, ",")+1]
	var out []string
	for _, v := range values {
		out = append(out, before+v)
	}
	return out
}

func argumentsOf(name, stateDir string) []string {
	switch name {
	case "PRESET|FILE", "FILE|PRESET":
		return append(policy.Presets(), addFiles)
	case "SHELL":
		return shells()
	case "COMMAND":
		return nil
	case "ID":
		all, err := launcher.Attempts(stateDir)
		if err != nil {
			return nil
		}
		var out []string
		for _, a := range all {
			out = append(out, a.ID+"\t"+a.State)
		}
		return out
	}
	return []string{addFiles}
}

func matching(all []string, typed string) []string {
	return slices.DeleteFunc(all, func(c string) bool { return !strings.HasPrefix(c, ":") && !strings.HasPrefix(c, typed) })
}

type completionFlags struct {
	Shell string `arg:"" name:"SHELL"`
}

func shells() []string { return []string{"bash", "zsh", "fish"} }

func completionWording(texts map[string]words) {
	texts["completion"] = words{help: "Print the script with which a shell completes nsbox's command lines."}
	texts["completion SHELL"] = words{help: "bash, zsh or fish."}
}

const completionUsage = "nsbox completion bash|zsh|fish"

func completionDetails() string {
	return `
Examples:
  For this shell and for all later ones:
    bash:  echo 'source <(nsbox completion bash)' >>~/.bashrc
    zsh:   nsbox completion zsh >"${fpath[1]}/_nsbox"
    fish:  nsbox completion fish >~/.config/fish/completions/nsbox.fish
`
}

// showCompletion prints a script. All that is known about command lines is asked
// of nsbox itself, so that a script never grows old.
func showCompletion(c *console, shell string) error {
	text, ok := map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[shell]
	if !ok {
		return reason.New(reason.Usage, "SHELL", quotedWord(shell)+" is none that nsbox knows", "nsbox completion "+strings.Join(shells(), "|"))
	}
	c.text(text)
	return nil
}

func quotedWord(s string) string { return "\"" + visible(s) + "\"" }

// The words are taken from the line itself, since bash breaks them at = and :.
const bashCompletion = `_nsbox() {
    local line=${COMP_LINE:0:COMP_POINT} words cur before candidate
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    cur=${words[-1]}
    before=${cur%"${cur##*[=:]}"}
    COMPREPLY=()
    while IFS= read -r candidate; do
        case $candidate in
            :files) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "${cur#"$before"}"); compopt -o filenames ;;
            :dirs) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "${cur#"$before"}"); compopt -o filenames ;;
            :programs) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -c -- "$cur") ;;
            *) candidate=${candidate%%$'\t'*}
               [[ $candidate == *= ]] && compopt -o nospace
               COMPREPLY+=("${candidate#"$before"}") ;;
        esac
    done < <("${words[0]}" complete-words "${words[@]:1}" 2>/dev/null)
}
complete -F _nsbox nsbox
`

const zshCompletion = `#compdef nsbox
_nsbox() {
    local candidate
    local -a plain open
    for candidate in "${(@f)$("${words[1]}" complete-words "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        case $candidate in
            :files) _files ;;
            :dirs) _files -/ ;;
            :programs) _command_names -e ;;
            *) candidate=${candidate%%$'\t'*}
               if [[ $candidate == *= ]]; then open+=("$candidate"); elif [[ -n $candidate ]]; then plain+=("$candidate"); fi ;;
        esac
    done
    (( $#plain )) && compadd -a plain
    (( $#open )) && compadd -S '' -a open
    return 0
}
if [[ $funcstack[1] == _nsbox ]]; then _nsbox "$@"; else compdef _nsbox nsbox; fi
`

const fishCompletion = `function __nsbox_complete
    set -l typed (commandline -opc)
    set -l last (commandline -ct)
    set -l program $typed[1]
    set -e typed[1]
    for candidate in ($program complete-words $typed "$last" 2>/dev/null)
        switch $candidate
            case :files :dirs
                __fish_complete_path (string replace -r '^--[^=]*=' '' -- "$last")
            case :programs
                __fish_complete_command
            case '*'
                echo $candidate
        end
    end
end
complete -c nsbox -f -a '(__nsbox_complete)'
`
