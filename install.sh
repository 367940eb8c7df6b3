#!/bin/sh
# Installs a release of OpenCode Cloud: fetches its archive, proves its sum, and puts it below a prefix.
#
#   curl -fsSL ADDRESS/install.sh | OPENCODE_CLOUD_RELEASES=ADDRESS sh
#
# ADDRESS is where somebody serves the files that `./dev release` makes. Nothing is changed before the sum is proved. All of
# it is in functions, so that half of a script that broke off on its way does nothing.
set -eu

usage() {
  cat <<'END'
usage: install.sh [--prefix DIR] [--version VERSION]

  --prefix DIR        install below DIR [default: ~/.local]
  --version VERSION   install this version [default: the newest]

OPENCODE_CLOUD_RELEASES is the address of the releases, such as https://releases.example.com
END
}

die() {
  printf 'install.sh: %s\n' "$1" >&2
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# Writes what is at a URL to a file.
fetch() {
  if have curl; then
    curl --fail --silent --show-error --location --retry 2 --output "$2" "$1" 2>"$work/why"
  elif have wget; then
    wget --no-verbose --tries=3 --output-document="$2" "$1" 2>"$work/why"
  else
    die "it needs curl or wget; install one of them"
  fi || die "cannot fetch $1: $(tail -n 1 "$work/why"); check OPENCODE_CLOUD_RELEASES and --version"
}

# Prints the SHA-256 sum of a file.
compute_sum() {
  if have sha256sum; then
    sha256sum "$1" | cut -d' ' -f1
  else
    shasum -a 256 "$1" | cut -d' ' -f1
  fi
}

find_platform() {
  [ "$(uname -s)" = Linux ] || die "there are no releases for $(uname -s); they are for Linux"
  case "$(uname -m)" in
    x86_64 | aarch64) platform=$(uname -m)-linux ;;
    *) die "there are no releases for $(uname -m); build it from its source" ;;
  esac
}

# Makes the prefix, before anything is fetched.
make_prefix() {
  mkdir -p "$prefix/bin" 2>/dev/null && [ -w "$prefix/bin" ] \
    || die "cannot write to $prefix/bin; choose another place with --prefix, or use sudo"
  prefix=$(cd "$prefix" && pwd)
}

# Reads the arguments into $prefix and $version.
read_arguments() {
  prefix=${HOME:-}/.local version=
  while [ $# -gt 0 ]; do
    case "$1" in
      --prefix | --version)
        [ $# -gt 1 ] || die "$1 needs a value"
        if [ "$1" = --prefix ]; then prefix=$2; else version=$2; fi
        shift
        ;;
      --prefix=*) prefix=${1#*=} ;;
      --version=*) version=${1#*=} ;;
      --help | -h)
        usage
        exit 0
        ;;
      *) die "it does not know $1; see --help" ;;
    esac
    shift
  done
  [ -n "$prefix" ] && [ "$prefix" != /.local ] || die "HOME is not set; choose a place with --prefix"
}

# Puts the unpacked files in their places. A running executable goes on with the old file.
put_in_place() {
  for part in share lib; do
    [ ! -d "$tree/$part" ] || cp -R "$tree/$part" "$prefix/"
  done
  cp "$tree/bin/opencode-cloud" "$prefix/bin/.opencode-cloud.$$"
  mv -f "$prefix/bin/.opencode-cloud.$$" "$prefix/bin/opencode-cloud"
}

say_what_is_next() {
  printf '%s is in %s/bin\n' "$("$prefix/bin/opencode-cloud" --version)" "$prefix"
  case ":$PATH:" in
    *":$prefix/bin:"*) ;;
    # Somebody else expands it.
    # shellcheck disable=SC2016
    *) printf 'first: export PATH="%s/bin:$PATH"\n' "$prefix" ;;
  esac
  printf 'next: opencode-cloud up        (needs Postgres installed: apt-get install postgresql)\n'
}

main() {
  read_arguments "$@"
  releases=${OPENCODE_CLOUD_RELEASES:-}
  [ -n "$releases" ] || die "set OPENCODE_CLOUD_RELEASES to the address of the releases; there is no usual one yet"
  releases=${releases%/}
  find_platform
  have sha256sum || have shasum || die "it needs sha256sum or shasum; install one of them"
  make_prefix
  work=$(mktemp -d)
  trap 'rm -rf "$work" "$prefix/bin/.opencode-cloud.$$"' EXIT
  trap 'exit 1' HUP INT TERM
  if [ -z "$version" ]; then
    fetch "$releases/latest.txt" "$work/latest"
    version=$(head -n 1 "$work/latest")
  fi
  case "$version" in
    '' | *[!0-9A-Za-z.+-]*) die "'$version' is no version; name one with --version" ;;
  esac
  name=opencode-cloud-$version-$platform
  fetch "$releases/$name.tar.gz.sha256" "$work/sum"
  fetch "$releases/$name.tar.gz" "$work/archive"
  wanted=$(cut -d' ' -f1 "$work/sum" | head -n 1)
  sum=$(compute_sum "$work/archive")
  [ "$sum" = "$wanted" ] || die "the sum of $name.tar.gz is $sum and should be $wanted: nothing is installed; try again, and
if it stays so, ask whoever serves $releases"
  mkdir "$work/unpacked"
  tar -xzf "$work/archive" -C "$work/unpacked" || die "$name.tar.gz cannot be unpacked: ask whoever serves $releases"
  tree=$work/unpacked/$name
  "$tree/bin/opencode-cloud" --version >"$work/why" 2>&1 \
    || die "the executable does not run on this machine ($(tail -n 1 "$work/why")); it needs Debian 12, Ubuntu 22.04 or later"
  put_in_place
  say_what_is_next
}

main "$@"
