# The gate: nothing is believed to be done before this passes.
export TODO="${TMPDIR:-/tmp}/longhaul-demo-$$.txt"
trap 'rm -f "$TODO" "$TODO.new"' EXIT
fail() { echo "check: $1"; exit 1; }

sh todo.sh add milk && sh todo.sh add bread || fail "add does not work"
sh todo.sh list | grep -q bread || fail "list does not show what was added"
sh todo.sh done 1 || fail "done does not work"
sh todo.sh list | grep -q milk && fail "what is done is still listed"
echo "check: all is well"
