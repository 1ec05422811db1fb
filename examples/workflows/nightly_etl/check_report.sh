set -e
expect() { # what, expected, found
    if [ "$2" != "$3" ]; then
        echo "$1: expected '$2', found '$3'" >&2
        exit 1
    fi
    echo "$1: $3"
}
sum=$(awk -F, 'NR == FNR { rate[$1] = $2; next } { sum += $3 * rate[$4] } END { printf "%.2f", sum / 100000 }' \
    rates.csv inbox/orders.csv)
expect "orders" 500000 "$(awk '/^  all/ { print $3 }' report.txt)"
expect "euros" "$sum" "$(awk '/^  all/ { print $(NF - 1) }' report.txt)"
expect "regions" 32 "$(grep -c '^  region' report.txt)"
expect "best customers" 10 "$(grep -c '^  c[0-9]' report.txt)"
expect "euros, as ever" 127468872.29 "$sum"
