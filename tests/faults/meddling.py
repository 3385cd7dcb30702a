"""A method that meddles with its judge, the tool's files or other runs. A plugin file of the tests."""

from dataclasses import dataclass

import numpy as np
import torch

from ssmlbench.api import Method, bce, option
from tests.faults.attacks import file_changes, interpreter, judge_messages, other_processes
from tests.faults.attacks.places import stolen

DEEDS = {
    deed.__name__.replace("_", " "): deed
    for deed in (
        interpreter.reads_labels_and_silences_the_report,
        interpreter.reads_labels_and_breaks_json,
        interpreter.reads_labels_and_empties_the_desk,
        other_processes.reads_labels_by_the_judges_root,
        other_processes.reads_labels_by_the_first_process,
        other_processes.takes_the_judges_descriptors,
        other_processes.takes_the_judges_room,
        other_processes.suspends_its_judge,
        other_processes.signals_the_server_of_its_judge,
        other_processes.leaves_processes_that_fork_and_leave,
        interpreter.starts_a_program_past_the_report,
        judge_messages.writes_to_every_descriptor,
        judge_messages.sends_a_mask_that_is_too_large,
        judge_messages.hands_in_what_was_not_checked,
        judge_messages.hands_in_fewer_rows,
        judge_messages.reports_seconds_that_are_no_number,
        judge_messages.reports_less_than_no_memory,
        judge_messages.reports_one_epoch_three_times,
        judge_messages.reports_a_formula_as_a_phase,
        judge_messages.reports_a_text_as_a_number,
        judge_messages.sends_an_event_without_fields,
        judge_messages.reports_thousands_of_columns,
        judge_messages.grades_an_epoch_that_there_is_not,
        judge_messages.records_an_epoch_that_there_is_not,
        judge_messages.hands_in_an_epoch_of_its_choice,
        judge_messages.hands_in_weights_of_other_labels,
        file_changes.changes_the_tools_code,
        file_changes.changes_compiled_code,
        file_changes.puts_code_in_the_way_of_python,
        file_changes.renames_code_into_the_tool,
        file_changes.changes_another_method,
        file_changes.changes_another_result,
        file_changes.changes_another_history,
        file_changes.forges_what_grids_remember,
        file_changes.links_its_files_to_another_run,
        file_changes.puts_a_folder_in_place_of_its_history,
        file_changes.puts_a_fifo_in_place_of_its_history,
        file_changes.puts_a_pipe_in_place_of_its_model,
        file_changes.links_its_model_to_an_endless_device,
        file_changes.puts_terabytes_in_place_of_its_model,
        file_changes.deletes_its_lock_in_libc,
        file_changes.puts_files_in_place_of_the_judges,
    )
}


class LyingTensor(torch.Tensor):
    """Says of itself what is wanted."""

    def min(self, *rest, **more):
        return torch.tensor(0.0)

    def max(self, *rest, **more):
        return torch.tensor(1.0)

    def all(self, *rest, **more):
        return torch.tensor(True)


class LyingArray(np.ndarray):
    def min(self, *rest, **more):
        return 0.0

    def max(self, *rest, **more):
        return 1.0


class Meddler(Method):
    """Does what its hyper-parameter says."""

    name = "meddler"

    @dataclass(frozen=True)
    class Config(Method.Config):
        how: str = option("", "what it does")

    def start_epoch(self, pools):
        if (deed := DEEDS.get(self.config.how)) and pools.epoch == 3:
            try:
                deed()
            except BaseException as error:  # it hides that it tried
                (stolen() / "why").write_text(repr(error))
            else:
                (stolen() / "done").touch()
        if self.config.how == "logs what the judge logs":
            self.diagnostics = {"pseudo_precision": torch.tensor(1.0)}

    def loss(self, labelled, unlabelled):
        return {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}

    def scores(self, logits):
        found = logits.sigmoid()
        if self.config.how == "lies about its scores":
            return (found + 5).as_subclass(LyingTensor)
        if self.config.how == "lies about its array":
            return (found + 5).numpy().view(LyingArray)
        return found
