#!/usr/bin/env bash
# Makes a certificate authority and a certificate for each node, to try a cluster.
# For production let your own authority sign; each certificate needs both purposes,
# server and client, since nodes are clients of each other.
#
#   certs.sh DIR NODE[=NAME,…] …
#
# NAMEs are the host names and IP addresses under which clients and nodes reach the
# node; localhost and 127.0.0.1 are always among them. What is there is kept.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
dir=$1
shift
umask 077
mkdir -p "$dir"
cd "$dir"

key() { [ -e "$1" ] || openssl ecparam -name prime256v1 -genkey -noout -out "$1"; }

key ca-key.pem
[ -e ca.pem ] || openssl req -x509 -new -key ca-key.pem -sha256 -days 3650 -subj "/CN=skald test authority" -out ca.pem
for arg in "$@"; do
	node=${arg%%=*}
	names=DNS:localhost,IP:127.0.0.1,DNS:$node
	if [ "$node" != "$arg" ]; then
		for name in $(tr , ' ' <<<"${arg#*=}"); do
			if [[ $name =~ ^[0-9.]+$ || $name == *:* ]]; then names+=,IP:$name; else names+=,DNS:$name; fi
		done
	fi
	[ -e "$node.pem" ] && continue
	key "$node-key.pem"
	openssl req -new -key "$node-key.pem" -subj "/CN=$node" -out "$node.csr"
	openssl x509 -req -in "$node.csr" -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 825 -sha256 -out "$node.pem" \
		-extfile <(printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\nbasicConstraints=CA:FALSE\n' "$names") 2>/dev/null
	rm "$node.csr"
done
