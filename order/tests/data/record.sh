#!/bin/sh
# Records the axum example and its load under strace: record.sh BINARY FOLDER
set -e
binary=$1 folder=$2
calls=process,network,read,readv,write,writev,close
mkdir -p "$folder/shop" "$folder/load"
cd "$folder"
strace -f -ttt -yy -s 512 -e trace=$calls -o shop/shop.strace "$binary" --listen 127.0.0.1:18080 \
  --sampler always --export file=shop/spans --log shop/shop.log &
sleep 3
strace -f -ttt -yy -s 512 -e trace=$calls -o load/load.strace "$binary" --to 127.0.0.1:18080 \
  --requests 120 --connections 4 --sampler always --export file=load/spans --log load/load.log
sleep 1
pkill -INT -P $!
wait
