set -e
{
    echo "Orders by region"
    awk -F, '{ printf "  region %2d: %6d orders, %14.2f EUR\n", $1, $2, $3 / 100000; n += $2; sum += $3 }
        END { printf "  all      : %6d orders, %14.2f EUR\n", n, sum / 100000 }' totals.csv
    echo "Best customers"
    awk -F, '{ printf "  %s %-14s %10.2f EUR\n", $1, $2, $3 / 100000 }' best.csv
} > report.tmp
mv report.tmp report.txt
