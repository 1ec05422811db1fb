# Writes priced/<region>.csv: customer, name, region, order, thousandths of a cent; sorted by customer.
set -e
export LC_ALL=C
region=$1
work=priced/.$region
rm -rf "$work"
mkdir -p "$work"
awk -F, -v region="$region" '$3 == region' customers.csv > "$work/customers"
awk -F, 'NR == FNR { mine[$1] = 1; next } $2 in mine' "$work/customers" inbox/orders.csv |
    sort -t, -k2,2 -k1,1n > "$work/orders"
# join: customer,name,region,order,cents,currency
join -t, -1 1 -2 2 "$work/customers" "$work/orders" > "$work/joined"
awk -F, 'NR == FNR { rate[$1] = $2; next } { printf "%s,%s,%s,%s,%d\n", $1, $2, $3, $4, $5 * rate[$6] }' \
    rates.csv "$work/joined" > "$work/priced"
mv "$work/priced" "priced/$region.csv"
rm -rf "$work"
