#!/usr/bin/env bash
# Makes the virtual environment ready; quick when it is. serve.sh and test.sh call it.
#
#   SGLANG_ASCEND_EXTRAS  more sets to install, e.g. "npu pd" (files of requirements/); "contract" goes
#                         into a folder of its own in the environment
#   SGLANG_ASCEND_APT     1: root installs missing Debian packages instead of being told to
#   SGLANG_ASCEND_PYTHON  the Python 3.11 to use
#   SGLANG_ASCEND_VENV    the environment's folder (default: .venv)
#
# Packages come from wherever pip is configured to look. PyPI's own torch brings CUDA libraries of
# several GB, which nothing here uses; where pip is pointed at CPU builds as well, it takes those.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=${SGLANG_ASCEND_VENV:-$root/.venv}
requirements=$root/requirements
read -ra extras <<<"${SGLANG_ASCEND_EXTRAS:-}"
contract=$venv/contract      # on no Python's path; sglang_ascend.contract puts it there
stamp=$venv/.ready           # written last: what the environment was made from, and its sets
unfinished=$venv/.unfinished # there while packages are being written
lock_wait_s=3600

die() {
    echo "error: $*" >&2
    exit 2
}

say() { echo "[setup $1/4] $2" >&2; }

# A text that changes with anything that the environment depends on, in a few milliseconds.
fingerprint() {
    {
        cat -- "$requirements"/*.txt "$root/pyproject.toml" "$venv/pyvenv.cfg"
        echo "$root"
        ls -d -- "$venv"/lib/python*/site-packages/*.dist-info "$contract"/*.dist-info \
            2>/dev/null || true
    } | sha256sum
}

has_sets() {
    local extra
    for extra in "${extras[@]:-}"; do
        [[ -z $extra || " $(sed -n 2p -- "$stamp") " == *" $extra "* ]] || return 1
    done
}

ready() {
    [[ ! -e $unfinished && -f $stamp && -x $venv/bin/python ]] || return 1
    has_sets || return 1
    [[ $(sed -n 1p -- "$stamp") == "$(fingerprint)" ]] && "$venv/bin/python" -c '' 2>/dev/null
}

find_python() {
    local candidate
    for candidate in "${SGLANG_ASCEND_PYTHON:-}" python3.11 python3; do
        [[ -n $candidate ]] || continue
        if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
            command -v -- "$candidate"
            return
        fi
        [[ $candidate != "${SGLANG_ASCEND_PYTHON:-}" ]] ||
            die "SGLANG_ASCEND_PYTHON=$candidate is no Python 3.11"
    done
    die "Python 3.11 is needed (triton-ascend has no wheels for newer ones, SGLang none for older);" \
        "install python3.11 or set SGLANG_ASCEND_PYTHON to one"
}

check_libc() {
    local found
    found=$(getconf GNU_LIBC_VERSION 2>/dev/null || echo "another C library")
    [[ $(printf 'glibc 2.34\n%s\n' "$found" | sort -V | head -n 1) == "glibc 2.34" ]] ||
        die "glibc 2.34 or newer is needed (SGLang's wheel is built for it), found $found;" \
            "use Debian 12, Ubuntu 22.04 or later"
}

# Puts the Debian packages in `missing` that the chosen sets need and the machine has not.
# Reads "package probe set" lines.
find_missing_packages() {
    local python=$1 package probe set
    missing=()
    while read -r package probe set; do
        [[ $package != "#"* && -n $package ]] || continue
        [[ $set == always || " ${extras[*]:-} " == *" $set "* ]] || continue
        case $probe in
            module:*) "$python" -c "import ${probe#module:}" 2>/dev/null || missing+=("$package") ;;
            library:*) "$python" -c "import ctypes; ctypes.CDLL('${probe#library:}')" 2>/dev/null ||
                missing+=("$package") ;;
            file:*) [[ -e ${probe#file:} ]] || missing+=("$package") ;;
            command:*) command -v -- "${probe#command:}" >/dev/null || missing+=("$package") ;;
        esac
    done <"$root/launch/debian-packages.txt"
    ((${#missing[@]} > 0)) || return 0
    # Several sets may need the same one.
    mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
}

# Fails with one line and the command that helps, unless it may run that command itself.
check_debian_packages() {
    local missing
    find_missing_packages "$1"
    if ((${#missing[@]} > 0)) && [[ ${SGLANG_ASCEND_APT:-} == 1 && $EUID == 0 ]] &&
        command -v apt-get >/dev/null; then
        say 1 "installing Debian packages ${missing[*]}"
        apt_install "${missing[@]}" || { apt-get update && apt_install "${missing[@]}"; } >&2 || true
        find_missing_packages "$1"
    fi
    ((${#missing[@]} == 0)) || die "missing Debian package(s): ${missing[*]}; run: sudo apt-get install -y ${missing[*]}"
}

apt_install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >&2
}

pip_install() {
    "$venv/bin/python" -m pip install --disable-pip-version-check "$@" >&2 && return
    local code=$?
    # An orderly failure comes before pip writes packages; a signal may come in the middle.
    ((code > 128)) || rm -f -- "$unfinished"
    die "pip failed with exit code $code, the reason is above; run the same command again to go on"
}

make_venv() {
    if [[ -e $unfinished ]] || ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
        say 1 "creating $venv"
        rm -rf -- "$venv"
        "$1" -m venv -- "$venv" >&2 || die "creating $venv failed, the reason is above"
    else
        say 1 "using $venv"
    fi
    touch -- "$unfinished"
}

install_packages() {
    local sets=(-r "$requirements/serve.txt") extra
    for extra in "${extras[@]:-}"; do
        [[ -z $extra || $extra == contract ]] || sets+=(-r "$requirements/$extra.txt")
    done
    say 2 "installing pinned packages"
    pip_install "${sets[@]}" -c "$requirements/constraints.txt"
    say 3 "installing SGLang and what else goes in without its dependencies"
    local no_deps=(--no-deps -r "$requirements/no-deps.txt")
    # A CUDA build of torch brings upstream triton, whose files overwrite those of triton-ascend.
    if compgen -G "$venv/lib/python*/site-packages/triton-[0-9]*.dist-info" >/dev/null; then
        "$venv/bin/python" -m pip uninstall -y triton triton-ascend >&2
    fi
    pip_install "${no_deps[@]}"
    rm -rf -- "$contract"
    if [[ " ${extras[*]:-} " == *" contract "* ]]; then
        pip_install --no-deps --target "$contract" -r "$requirements/contract.txt"
    fi
    say 4 "installing sglang_ascend from $root"
    pip_install --no-deps --no-build-isolation -e "$root"
}

main() {
    ready && return
    local extra python
    for extra in "${extras[@]:-}"; do
        [[ -z $extra || -f $requirements/$extra.txt ]] ||
            die "SGLANG_ASCEND_EXTRAS names \"$extra\"; there is no $requirements/$extra.txt"
    done
    mkdir -p -- "$(dirname -- "$venv")"
    exec 9>"$venv.lock"
    flock -n 9 || echo "waiting for another setup of $venv" >&2
    flock -w "$lock_wait_s" 9 || die "another setup of $venv has run for $lock_wait_s s; end it first"
    ready && return
    check_libc
    python=$(find_python)
    check_debian_packages "$python"
    make_venv "$python"
    install_packages
    rm -f -- "$unfinished"
    { fingerprint; echo "${extras[*]:-}"; } >"$stamp.new"
    mv -- "$stamp.new" "$stamp"
}

main
