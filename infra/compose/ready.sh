#!/bin/bash
# A health check without curl: ready.sh PORT PATH
exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
printf 'GET %s HTTP/1.0\r\n\r\n' "$2" >&3
read -r -t 5 _ status _ <&3 && [ "$status" = 200 ]
