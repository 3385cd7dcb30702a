"""Every way to labels, by its name, and what is expected of it in a sealed process."""

from tests.faults.attacks import (
    file_functions,
    interpreter,
    native_code,
    other_processes,
    paths_and_links,
    results_and_raw_data,
)

MODULES = (
    *(file_functions, paths_and_links, results_and_raw_data, interpreter, other_processes),
    native_code,
)


def named(beginning):
    """The functions of the modules whose names begin so."""
    return {
        name: function
        for module in MODULES
        for name, function in vars(module).items()
        if name.startswith(beginning) and function.__module__ == module.__name__
    }


STEALS = named("from_")
"""They return scores. cheats.py has one more, which needs its data set."""
WAYS = named("by_")

REPORTED_STEALS = (
    *("from_file", "from_descriptor", "from_renamed", "from_link", "from_loader", "from_card"),
    *("from_adapter", "from_other_runs", "from_memory_map", "from_judges_memory", "from_results"),
    *("from_unfinished_scores", "from_judgements", "from_open_folder", "from_copy"),
    *("from_symbolic_link", "from_thread_of_judge", "from_judges_descriptors", "from_decoy"),
    *("from_moved_cache", "from_hard_link_made_before", "from_index", "from_linked_raw_file"),
    *("from_deleted_labels", "from_changed_builtins", "from_changed_seal"),
)
FINDS_NOTHING_IN_TRAINING = ("from_memory",)
"""Tried where a method trains: only there its memory is what it is."""
REFUSED_IN_TRAINING = ("from_a_thread_that_was_there_before",)
"""By the kernel; tried there too, for the threads that such a process has."""
STEALS_REFUSED_BY_THE_KERNEL = (
    *("from_native_code", "from_program", "from_fork", "from_rust", "from_judgements_in_rust"),
    *("from_libc", "from_hard_link_in_libc", "from_judges_memory_in_libc", "from_index_in_libc"),
    *("from_linked_raw_file_in_libc", "from_datasets_library", "from_ptrace", "from_file_handle"),
    "from_bind_mount",
)
WAYS_REFUSED_BY_THE_KERNEL = (
    *("by_torch_from_file", "by_torch_storage", "by_safetensors_of_another_run"),
    *("by_arrow_dataset", "by_sqlite_attach", "by_descriptor_of_a_path_in_libc", "by_sendfile"),
    *("by_a_raw_system_call", "by_a_namespace", "by_execveat_of_a_script"),
    *("by_closure_of_the_watch", "by_torchscript", "by_certificates", "by_loading_a_library"),
    *("by_arrow_csv", "by_spawned_process", "by_standard_input_of_a_program"),
    *("by_what_loggers_keep_in_libc", "by_a_replaced_function_of_the_library"),
    *("by_another_cache_in_libc", "by_a_link_below_the_raw_folder_in_libc"),
    "by_scores_of_another_results_folder",
)
"""Native code, or the watch in Python was taken apart."""
FINDS_NOTHING = ("by_inherited_descriptors", "by_memory_of_others", "by_sockets")
RACES = ("by_a_link_that_is_swapped",)
"""Reported, or refused by the kernel: whoever looks at the moment when it points to the labels."""
HIDES_ITS_ERROR = (
    *("by_a_finalizer", "by_linecache", "by_globbing_label_folders", "by_walking_the_raw_folder"),
    "by_another_interpreter",
)
"""Reported, and what it raises is lost."""
REPORTED_WAYS = sorted(
    WAYS.keys() - {*WAYS_REFUSED_BY_THE_KERNEL, *FINDS_NOTHING, *RACES, *HIDES_ITS_ERROR}
)
"""Attempts that go through Python, as REPORTED_STEALS: refused, and the run says what was tried."""
REPORTED = (*REPORTED_STEALS, *REPORTED_WAYS)
REFUSED_BY_THE_KERNEL = (*STEALS_REFUSED_BY_THE_KERNEL, *WAYS_REFUSED_BY_THE_KERNEL)
