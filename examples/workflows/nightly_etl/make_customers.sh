# customer, name, region. 6,400 customers in 32 regions.
set -e
awk 'BEGIN {
    for (customer = 6400; customer >= 1; customer--)
        printf "c%04d,Customer %d,%d\n", customer, customer, (customer * 7) % 32
}' | LC_ALL=C sort -t, -k1,1 > customers.tmp
mv customers.tmp customers.csv
