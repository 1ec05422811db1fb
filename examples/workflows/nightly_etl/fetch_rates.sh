# currency, thousandths of a euro.
set -e
if [ "$ATTEMPT" -lt 3 ]; then
    echo "the rates server does not answer (attempt $ATTEMPT)" >&2
    exit 7
fi
printf 'EUR,1000\nGBP,1150\nUSD,900\n' > rates.tmp
mv rates.tmp rates.csv
