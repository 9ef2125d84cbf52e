"""Starts a user's program: by the words of its command, or by a shell if it needs one.

A node is terminated by SIGTERM to its first process, and to no other. Shells do not forward such a signal; their
programs would not receive it until they are killed. So another shell watches over the one that is needed, as the node's
first process. It signals the programs, waits for them, and ends like the command. It needs only `/bin/sh` and `sleep`:
it runs in images without ElasticDL.

Which programs get the signal
    The programs that the command has started, not their descendants: helpers are needed until their program has
    finished. In a pipeline the first program gets it first, since its output has no reader when the others are gone;
    most of these end with it, and the others get the signal then. Later commands do not start any more. Where there is
    no list of a process's children (macOS), all processes of the node get it.
"""

from __future__ import annotations

import shlex

# Characters that only a shell understands. Other commands are started directly.
_SHELL = frozenset("|&;<>()$`*?[]\n")
# Its argument: the command. The shell that runs it, and its subshells, are known by their first words, for a process
# tells its words without what is between them. When a wait is cut short by a signal, a second one tells the exit
# status, unless (127) that was known already.
_WATCH = r"""
words_of_shell="trap 's=\$?; wait; exit \$s' TERM;"

look_at() {
    words=
    IFS= read -r words <"/proc/$1/cmdline"
    case $words in
    '') ;;
    "/bin/sh-c$words_of_shell"*)
        children=
        read -r children <"/proc/$1/task/$1/children"
        for child in $children; do look_at "$child"; done
        ;;
    *) if [ -p "/proc/$1/fd/0" ]; then readers="$readers $1"; else others="$others $1"; fi ;;
    esac
}

tell() {
    for program; do
        case $signalled in
        *" $program "*) ;;
        *) signalled="$signalled$program "; kill -TERM "$program" ;;
        esac
    done
}

stop() {
    [ -e "/proc/$main/task/$main/children" ] || { kill -TERM 0; return; }
    signalled=' '
    tell "$main"
    others= readers=
    look_at "$main"
    first=${others:-$readers}
    tell $first
    while sleep 1 && kill -0 "$main"; do
        for program in $first; do kill -0 "$program" && continue 2; done
        others= readers=
        look_at "$main"
        tell $others $readers
    done
}

stopped=
trap 'exit 143' TERM
/bin/sh -c "$words_of_shell $1" &
main=$!
trap 'trap "" TERM; stopped=yes; stop >/dev/null 2>&1 &' TERM
wait "$main"
status=$?
if [ "$stopped" ]; then
    wait "$main"
    again=$?
    [ "$again" -eq 127 ] || status=$again
fi
exit "$status"
"""


def command_line(command: str) -> tuple[str, ...]:
    """The words of a command; a shell's if it takes one to understand it."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if not words or _needs_shell(command, words):
        return ("/bin/sh", "-c", _WATCH, "/bin/sh", command)
    return tuple(words)


def of_shell(words: tuple[str, ...]) -> bool:
    """These are the words of a shell, and the last is the command that it is to understand."""
    return words[:3] == ("/bin/sh", "-c", _WATCH)


def _needs_shell(command: str, words: list[str]) -> bool:
    """Quotes alone do not: shlex understands them."""
    return any(character in _SHELL for character in command) or "=" in words[0]
