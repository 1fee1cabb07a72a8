# shellcheck shell=bash
# Completion for bash of the programs' options, of the words that an option takes (core|numa|none), and of the
# collectives and commands that they name. All of it comes from what a program prints with --help.

# Prints what may follow: the program, the word before the cursor.
_coll_words() {
  local program=$1 previous=$2 help values
  help=$("$program" --help 2>/dev/null) || return
  if [[ $previous == -* ]]; then # "with --other a|b" says when the option counts
    values=$(grep -E -- "^ .*$previous " <<<"$help" | sed 's/ with -[^ ]* [^ ]*//' |
      grep -oE -- '[a-z0-9-]+(\|[a-z0-9-]+)+' | head -1)
    [[ -z $values ]] || { tr '|' '\n' <<<"$values" && return; }
  fi
  grep -oE -- '(^|[ ,[])-(-[a-z][a-z_-]+|[a-zA-Z])\b' <<<"$help" | tr -d ' ,['
  # The collectives: a list after the word, without remarks in parentheses.
  sed -n '/^ *COLLECTIVE /,/^ *-\|^$/p' <<<"$help" | tr '\n' ' ' | sed 's/([^)]*)//g; s/COLLECTIVE\( is\)\?//' |
    tr ',;' '\n' | sed 's/^ *//; s/[ .]*$//' | grep -xE '[a-z_]+'
  # The commands of collctl.
  grep -oE '\[[a-z]+(\|[a-z]+)+\]' <<<"$help" | head -1 | tr '[|]' '\n'
}

_coll_complete() {
  local program=$1 word=$2 previous=$3 candidate i
  COMPREPLY=()
  if [[ ${program##*/} == collrun ]]; then
    # Behind the program that collrun starts, arguments are that program's own.
    for ((i = 1; i < COMP_CWORD; i++)); do
      if [[ ${COMP_WORDS[i]} != -* && ${COMP_WORDS[i - 1]} != -* ]] && type -P "${COMP_WORDS[i]}" >/dev/null; then
        _coll_complete "${COMP_WORDS[i]}" "$word" "$([ $i -lt $((COMP_CWORD - 1)) ] && echo "$previous")"
        return
      fi
    done
  fi
  while IFS= read -r candidate; do
    [[ -z $candidate || $candidate != "$word"* ]] || COMPREPLY+=("$candidate")
  done < <(_coll_words "$program" "$previous" | sort -u)
  [[ $word == -* || ${#COMPREPLY[@]} -gt 0 ]] && return
  mapfile -t COMPREPLY < <([[ ${program##*/} == collrun ]] && compgen -c -- "$word"; compgen -f -- "$word")
}

complete -F _coll_complete -o filenames collrun collctl coll_perf coll_recovery coll_train coll_explain coll_calibrate \
  coll_topo
