/** Shell scripts that complete commands of svc. */

/**
 * Each script runs svc with `__complete WORD…`; the last argument is at the cursor. The output has lines of
 * \`word<TAB>description\`.
 */
export const completionScripts = {
  bash: `_svc_complete() {
  local line
  COMPREPLY=()
  while IFS= read -r line; do
    # Bash inserts words unquoted, and packages choose some of them.
    printf -v line %q "\${line%%$'\\t'*}"
    COMPREPLY+=("$line")
  done < <(svc __complete "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  if [[ \${COMPREPLY[0]-} == *= ]]; then compopt -o nospace; fi
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
  local -a described unfinished
  local line entry
  for line in "\${lines[@]}"; do
    entry="\${\${line%%$'\\t'*}//:/\\\\:}:\${line#*$'\\t'}"
    if [[ \${line%%$'\\t'*} == *= ]]; then unfinished+=("$entry"); else described+=("$entry"); fi
  done
  _describe svc described -- unfinished -S ''
}
compdef _svc svc
`,
  fish: `function __svc_complete
  set -l lines (svc __complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)
  if test (count $lines) -eq 0
    __fish_complete_path (commandline -ct)
  else
    printf '%s\\n' $lines
  end
end
complete -c svc -f -a '(__svc_complete)'
`,
} as const;
