/** `svc completion`: scripts that let a shell ask svc itself what comes next. */
import { Argument } from "commander";
import type { Command } from "commander";
import type { RunCommand } from "../run-command.ts";

export function addCompletionCommand(parent: Command, run: RunCommand): void {
  parent
    .command("completion")
    .description("print the completion script of a shell")
    .addArgument(new Argument("<shell>", "the shell").choices(Object.keys(scripts)))
    .addHelpText("after", installHelp)
    .action(run((context, shell: keyof typeof scripts) => context.print(scripts[shell])));
}

const installHelp = `
Add one of these to the shell's start file:
  bash   source <(svc completion bash)
  zsh    source <(svc completion zsh)
  fish   svc completion fish | source
`;

/** Each asks \`svc __complete WORD…\`, the last word being the one at the cursor; it answers lines of \`word<TAB>description\`. */
const scripts = {
  bash: `_svc_complete() {
  local line
  COMPREPLY=()
  while IFS= read -r line; do
    COMPREPLY+=("\${line%%$'\\t'*}")
  done < <(svc __complete "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _svc_complete svc
`,
  zsh: `#compdef svc
_svc() {
  local -a lines
  lines=("\${(@f)$(svc __complete "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  lines=("\${(@)lines:#}")
  if (( \${#lines} == 0 )); then
    _files
    return
  fi
  local -a described
  local line
  for line in "\${lines[@]}"; do
    described+=("\${\${line%%$'\\t'*}//:/\\\\:}:\${line#*$'\\t'}")
  done
  _describe svc described
}
compdef _svc svc
`,
  fish: `complete -c svc -f -a '(svc __complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
complete -c svc -n '__fish_contains_opt file config socket' -F
`,
} as const;
