# bash completion for tensortap: source <(tensortap completion bash)
_tensortap_names() {
    tensortap ls --json --limit 20000 -- "$1" 2>/dev/null |
        sed -n 's/.*"name": "\([^"\\]*\)", "path".*/\1/p' | sort -u
}

_tensortap() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}
    local options='' words='' value='' run='' i n=0 kinds=() choices=()
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W 'ls show stats verify compare repeat nan export index recover wait convert summary completion version help' -- "$cur"))
        return
    fi
    case $command in
        ls)
            options='--long --follow --limit --name --step --rank --kind --attempt --json --color --help'
            case $prev in
            --limit) words=''; value=words ;;
            --name|-n) words=''; value=names ;;
            --step|-s) words=''; value=words ;;
            --rank|-r) words=''; value=words ;;
            --kind|-k) words='forward grad input output param'; value=words ;;
            --attempt) words='all'; value=words ;;
            --color) words='auto always never'; value=words ;;
            esac
            kinds[0]=p
            ;;
        show)
            options='--name --step --rank --kind --attempt --call --all --full --precision --json --color --help'
            case $prev in
            --name|-n) words=''; value=names ;;
            --step|-s) words=''; value=words ;;
            --rank|-r) words=''; value=words ;;
            --kind|-k) words='forward grad input output param'; value=words ;;
            --attempt) words='all'; value=words ;;
            --call|-c) words=''; value=words ;;
            --precision|-p) words=''; value=words ;;
            --color) words='auto always never'; value=words ;;
            esac
            kinds[0]=p
            kinds[1]=n
            ;;
        stats)
            options='--name --step --rank --kind --attempt --json --color --help'
            case $prev in
            --name|-n) words=''; value=names ;;
            --step|-s) words=''; value=words ;;
            --rank|-r) words=''; value=words ;;
            --kind|-k) words='forward grad input output param'; value=words ;;
            --attempt) words='all'; value=words ;;
            --color) words='auto always never'; value=words ;;
            esac
            kinds[0]=p
            ;;
        verify)
            options='--quick --rules --all --limit --json --color --help'
            case $prev in
            --limit) words=''; value=words ;;
            --color) words='auto always never'; value=words ;;
            esac
            kinds[0]=p
            ;;
        compare)
            options='--tol --noise --steps --precision --allow --all --limit --output --csv --threads --name --step --rank --kind --json --color --help'
            case $prev in
            --tol|-t) words=''; value=words ;;
            --noise) words=''; value=words ;;
            --steps) words=''; value=words ;;
            --precision|-p) words=''; value=words ;;
            --allow) words=''; value=words ;;
            --limit) words=''; value=words ;;
            --output|-o) words=''; value=words ;;
            --threads) words=''; value=words ;;
            --name|-n) words=''; value=names ;;
            --step|-s) words=''; value=words ;;
            --rank|-r) words=''; value=words ;;
            --kind|-k) words='forward grad input output param'; value=words ;;
            --color) words='auto always never'; value=words ;;
            esac
            kinds[0]=p
            kinds[1]=p
            ;;
        repeat)
            options='--allow --all --limit --output --csv --threads --name --step --rank --kind --json --color --help'
            case $prev in
            --allow) words=''; value=words ;;
            --limit) words=''; value=words ;;
            --output|-o) words=''; value=words ;;
            --threads) words=''; value=words ;;
            --name|-n) words=''; value=names ;;
            --step|-s) words=''; value=words ;;
            --rank|-r) words=''; value=words ;;
            --kind|-k) words='forward grad input output param'; value=words ;;
            --color) words='auto always never'; value=words ;;
            esac
            kinds[0]=p
            kinds[1]=p
            ;;
        nan)
            options='--name --step --rank --kind --attempt --json --color --help'
            case $prev in
            --name|-n) words=''; value=names ;;
            --step|-s) words=''; value=words ;;
            --rank|-r) words=''; value=words ;;
            --kind|-k) words='forward grad input output param'; value=words ;;
            --attempt) words='all'; value=words ;;
            --color) words='auto always never'; value=words ;;
            esac
            kinds[0]=p
            ;;
        export)
            options='--format --name --step --rank --kind --attempt --exact --force --json --color --help'
            case $prev in
            --format|-F) words='npy pt safetensors'; value=words ;;
            --name|-n) words=''; value=names ;;
            --step|-s) words=''; value=words ;;
            --rank|-r) words=''; value=words ;;
            --kind|-k) words='forward grad input output param'; value=words ;;
            --attempt) words='all'; value=words ;;
            --color) words='auto always never'; value=words ;;
            esac
            kinds[0]=p
            kinds[1]=p
            ;;
        index)
            options='--json --color --help'
            case $prev in
            --color) words='auto always never'; value=words ;;
            esac
            kinds[0]=p
            ;;
        recover)
            options='--json --color --help'
            case $prev in
            --color) words='auto always never'; value=words ;;
            esac
            kinds[0]=p
            ;;
        wait)
            options='--timeout --json --color --help'
            case $prev in
            --timeout|-t) words=''; value=words ;;
            --color) words='auto always never'; value=words ;;
            esac
            kinds[0]=p
            ;;
        convert)
            options='--all --force --json --color --help'
            case $prev in
            --color) words='auto always never'; value=words ;;
            esac
            kinds[0]=p
            kinds[1]=p
            ;;
        summary)
            options='--lang --long --json --color --help'
            case $prev in
            --lang) words='en zh'; value=words ;;
            --color) words='auto always never'; value=words ;;
            esac
            kinds[0]=p
            ;;
        completion)
            options='--json --color --help'
            case $prev in
            --color) words='auto always never'; value=words ;;
            esac
            kinds[0]=c; choices[0]='bash zsh'
            ;;
        version)
            options='--json --color --help'
            case $prev in
            --color) words='auto always never'; value=words ;;
            esac
            ;;
        help)
            options='--json --color --help'
            case $prev in
            --color) words='auto always never'; value=words ;;
            esac
            kinds[0]=s; choices[0]='ls show stats verify compare repeat nan export index recover wait convert summary completion version help'
            ;;
    *) return ;;
    esac
    for ((i = 2; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == -* ]] && continue
        ((n++ == 0)) && run=${COMP_WORDS[i]}
    done
    if [[ $value == names || (-z $value && $cur != -* && ${kinds[n]} == n) ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_tensortap_names "$run")" -- "$cur")
    elif [[ $value == words ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$cur"))
    elif [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$cur"))
    elif [[ -n ${choices[n]} ]]; then
        COMPREPLY=($(compgen -W "${choices[n]}" -- "$cur"))
    elif [[ ${kinds[n]} == p ]]; then
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    fi
}
complete -F _tensortap tensortap
