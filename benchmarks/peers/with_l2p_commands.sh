# l2p in a shell, run in an empty folder: bash with_l2p_commands.sh PRIVATE PUBLIC TEST EPSILON
set -e
l2p schema "$1" --target income --from "$2" --out schema.json
l2p apply --data "$1" --schema schema.json --epsilon "$4" --delta 1e-6 --protector universal-fold-1 --out run
l2p predict --model run --data "$3" --probabilities --out predictions.csv
