#!/bin/bash
# Makes the secrets of a cluster in a folder, each only where it is missing: secrets.sh FOLDER. In a container it runs as
# root, and gives them to the service's user. DATABASE_ADMIN, DATABASE_ADDRESS and NATS_ADDRESS say where others are.
set -euo pipefail
umask 077
cd "$1"

# keep NAME: stores standard input under this name unless something is there. In one step, since half a secret would be a
# wrong one for ever.
keep() {
  if [ -e "$1" ]; then cat >/dev/null; else cat >".$1.new" && mv ".$1.new" "$1"; fi
}
random() { head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n'; }

for name in admin-password migrate-password serve-password cluster-secret nats-gateway-password nats-worker-password \
  nats-placement-password; do
  random | keep "$name"
done
printf 'oc-first-%s' "$(random)" | keep bootstrap-key
printf 'compose:%s' "$(head -c 32 /dev/urandom | base64 | tr -d '\n')" | keep secrets-key

url() { printf 'postgres://%s:%s@%s' "$1" "$(cat "$2")" "${DATABASE_ADDRESS:-postgres:5432/opencode_cloud}"; }
url "${DATABASE_ADMIN:-postgres}" admin-password | keep admin-url
url oc_migrate migrate-password | keep migrate-url
url oc_app serve-password | keep database-url

user() { printf '{ user: "%s", password: "%s", permissions: { %s } }\n' "$1" "$(cat "nats-$1-password")" "$2"; }
{
  printf 'listen: "0.0.0.0:4222"\nhttp: "0.0.0.0:8222"\nauthorization { users: [\n'
  user gateway 'publish: ["oc.*.w.>", "oc.*.o.>"], subscribe: ["oc.*.o.>"]'
  user worker 'publish: ["oc.*.o.>"], subscribe: ["oc.*.w.>"]'
  user placement 'publish: ["oc.*.w.>"], subscribe: { deny: [">"] }'
  printf '] }\n'
} | keep nats.conf
for role in gateway worker placement; do
  printf 'nats://%s:%s@%s' "$role" "$(cat "nats-$role-password")" "${NATS_ADDRESS:-nats:4222}" | keep "nats-$role-url"
done

if [ "$(id -u)" = 0 ]; then chown -R 65532:65532 .; fi
echo "the secrets are in $PWD"
