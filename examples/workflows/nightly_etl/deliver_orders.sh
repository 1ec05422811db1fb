# order, customer, cents, currency. The same orders in every run and on every machine.
set -e
mkdir -p inbox
sleep 3
awk 'BEGIN {
    seed = 20260101
    split("EUR USD GBP", currency, " ")
    for (order = 1; order <= 500000; order++) {
        seed = (seed * 16807) % 2147483647; customer = 1 + seed % 6400
        seed = (seed * 16807) % 2147483647; cents = 100 + seed % 50000
        seed = (seed * 16807) % 2147483647; money = 1 + seed % 3
        printf "%d,c%04d,%d,%s\n", order, customer, cents, currency[money]
    }
}' > inbox/orders.tmp
# Whole or not at all: who waits for the file must not see half of it.
mv inbox/orders.tmp inbox/orders.csv
