"""Reporters that each break a promise, by the test of the contract that has to notice."""

import json
import logging
import math
import os
import sys
import threading
from pathlib import Path

import pytest
from in_memory import LIBRARY, Book, InMemoryContract, InMemoryReporter

from trackside import Configured, Limits, Reporter, StartError
from trackside.delivery import FAILED, Delivery
from trackside_testkit import ReporterContract

FAULTY: list[tuple[str, str]] = []
"""Pairs of a test's name and that of a contract in this module that must not pass it."""


def breaks(*tests):
    """Registers a faulty reporter, or a whole faulty contract, under the tests that it breaks."""

    def register(cls):
        attributes = {"reporter_class": cls, "__module__": __name__}
        contract = (
            cls if issubclass(cls, ReporterContract) else type("Of" + cls.__name__, (InMemoryContract,), attributes)
        )
        globals()[contract.__name__] = contract
        FAULTY.extend((test, contract.__name__) for test in tests)
        return cls

    return register


# ---- a run from start to end ----------------------------------------------------------------------------------------


@breaks("test_a_run_arrives_complete_and_in_order")
class LosesTheLastStep(InMemoryReporter):
    def log_points(self, points):
        super().log_points([point for point in points if point.step < 8])


@breaks("test_a_run_arrives_complete_and_in_order")
class CountsFromZero(InMemoryReporter):
    def log_points(self, points):
        for point in points:
            self.run.points += [(key, point.step - 1, value) for key, value in point.values.items()]


@breaks("test_a_run_arrives_complete_and_in_order")
class SendsTheLatestFirst(InMemoryReporter):
    def log_points(self, points):
        super().log_points(points)
        self.run.points.sort(key=lambda row: -row[1])


@breaks("test_all_that_is_sent_can_be_read_back")
class ReadsNoTexts(InMemoryContract):
    def read(self):
        runs = super().read()
        for run in runs:
            run.texts = None
        return runs


@breaks("test_arguments_and_the_config_of_the_model_arrive_as_params")
class SendsTheFirstParamsOnly(InMemoryReporter):
    def log_params(self, params):
        self.run.params = self.run.params or dict(params)


@breaks("test_a_long_parameter_is_cut_visibly_and_kept_whole_as_a_file")
class ForgetsWhatWasCut(InMemoryReporter):
    def log_file(self, name, text):
        pass


@breaks("test_a_text_arrives_at_its_step")
class WritesTextsAtTheStart(InMemoryReporter):
    def log_text(self, key, text, step, time):
        super().log_text(key, text, 0, time)


@breaks("test_what_is_logged_once_arrives_as_summary_or_at_the_last_step")
class ForgetsTheSummary(InMemoryReporter):
    def log_summary(self, values):
        pass


@breaks("test_a_checkpoint_arrives_without_the_pickle_of_all_arguments")
class UploadsEveryFile(InMemoryReporter):
    def log_artifact(self, artifact):
        self.run.artifacts[artifact.name] = os.listdir(artifact.path)


@breaks("test_a_prediction_arrives")
class IgnoresPredictions(InMemoryReporter):
    def on_predict(self, *args, **kwargs):
        pass


@breaks("test_what_was_sent_is_readable_once_the_training_has_ended")
class WritesWhenItIsClosedByHand(InMemoryReporter):
    def log_points(self, points):
        self.waiting = [*getattr(self, "waiting", []), *points]

    def close(self, status=None):
        super().close(status)
        if status is None:
            self.run = LIBRARY[self.tracker_id]
            super().log_points(self.waiting)


# ---- when a run starts and ends -------------------------------------------------------------------------------------


@breaks("test_several_trainings_are_several_runs")
class KeepsItsFirstRun(InMemoryReporter):
    first = None

    def start(self, run):
        self.first = self.first or super().start(run)
        self.run = LIBRARY[self.first]
        return self.first


@breaks(
    "test_two_runs_of_one_name_and_folder_do_not_mix",
    "test_a_new_run_is_started_where_the_user_does_not_want_to_resume",
)
class KnowsRunsByTheirFolder(InMemoryReporter):
    def start(self, run):
        self.run = LIBRARY.setdefault(run.output_dir, Book(run.name))
        return run.output_dir


@breaks("test_starting_twice_is_two_runs", "test_a_resumed_training_goes_on_in_its_run_also_after_an_evaluation")
class GoesOnWithAnOpenRun(InMemoryReporter):
    def on_train_begin(self, *args, **kwargs):
        if self.run is None:
            super().on_train_begin(*args, **kwargs)


@breaks("test_ending_twice_closes_a_run_once")
class ClosesAtEachEnd(InMemoryReporter):
    def on_train_end(self, *args, **kwargs):
        super().on_train_end(*args, **kwargs)
        self.finish("finished")

    def finish(self, status):
        LIBRARY[self.tracker_id].status = status


@breaks("test_ending_without_a_start_does_nothing")
class ClosesWhatWasNeverOpened(InMemoryReporter):
    def on_train_end(self, *args, **kwargs):
        self.run.status = "finished"


@breaks("test_what_is_logged_after_the_end_belongs_to_the_run")
class IsDeafAfterTheEnd(InMemoryReporter):
    def on_log(self, *args, **kwargs):
        if not (self.tracker_id and self.run is None):
            super().on_log(*args, **kwargs)


@breaks("test_an_evaluation_alone_is_a_run", "test_evaluations_before_and_after_a_training_belong_to_its_run")
class WaitsForATraining(InMemoryReporter):
    def on_log(self, *args, **kwargs):
        if self.run is not None:
            super().on_log(*args, **kwargs)

    on_evaluate = on_log


@breaks(
    "test_a_training_that_came_to_its_end_has_finished",
    "test_a_failed_run_stays_failed_whatever_is_evaluated_afterwards",
)
class SwapsFinishedAndFailed(InMemoryReporter):
    def finish(self, status):
        self.run.status = {"finished": "failed", "failed": "finished"}.get(status, status)


@breaks("test_an_exception_goes_on_and_says_how_the_run_has_ended")
class KnowsOneWayToEnd(InMemoryReporter):
    def finish(self, status):
        self.run.status = "finished"


@breaks("test_a_failed_run_stays_failed_whatever_is_evaluated_afterwards")
class ForgetsThatItHasFailed(InMemoryReporter):
    def _close(self, status):
        super()._close(status or "finished")


@breaks("test_a_resumed_training_goes_on_in_its_run")
class NeverResumes(InMemoryReporter):
    resume = "new"


@breaks("test_a_resumed_training_goes_on_in_its_run")
class EmptiesWhatItResumes(InMemoryReporter):
    def start(self, run):
        number = super().start(run)
        self.run.points.clear()
        return number


@breaks("test_a_checkpoint_knows_the_run_also_after_an_evaluation_before_the_training")
class KeepsItsIdToItself(InMemoryReporter):
    def _join(self, *args):
        session = super()._join(*args)
        session.carry_id = lambda: None
        return session


# ---- who speaks -----------------------------------------------------------------------------------------------------


@breaks("test_other_ranks_are_silent", "test_nothing_is_reported_where_reporting_is_switched_off")
class SpeaksEverywhere(InMemoryReporter):
    def _is_reporting_process(self, state):
        return True


@breaks("test_other_ranks_are_silent", "test_nothing_is_reported_where_reporting_is_switched_off")
class MakesItsFolderFirst(InMemoryReporter):
    def on_init_end(self, *args, **kwargs):
        Path("records").mkdir()


@breaks("test_a_forked_child_reports_nothing_and_leaves_the_run_open")
class SpeaksInChildren(InMemoryReporter):
    def _is_reporting_process(self, state):
        return state.is_world_process_zero


@breaks("test_a_copy_reports_a_run_of_its_own")
class CannotBePickled(InMemoryReporter):
    def __init__(self, **options):
        super().__init__(**options)
        self.lock = threading.Lock()


@breaks("test_a_copy_reports_a_run_of_its_own")
class CopiesItsRun(InMemoryReporter):
    def __getstate__(self):
        return vars(self)


# ---- values and keys ------------------------------------------------------------------------------------------------


@breaks("test_a_finite_number_arrives_as_it_is")
class Rounds(InMemoryReporter):
    def log_points(self, points):
        for point in points:
            self.run.points += [(key, point.step, round(value, 1)) for key, value in point.values.items()]


@breaks("test_a_number_that_is_not_finite_never_arrives_as_one_that_is")
class StoresTheLargestFloatInstead(InMemoryReporter):
    def log_points(self, points):
        largest = sys.float_info.max
        for point in points:
            self.run.points += [(key, point.step, min(value, largest)) for key, value in point.values.items()]


@breaks("test_a_number_that_is_not_finite_never_arrives_as_one_that_is")
class RefusesTheWholeBatchForANan(InMemoryReporter):
    def log_points(self, points):
        json.dumps([dict(point.values) for point in points], allow_nan=False)
        super().log_points(points)


@breaks("test_what_is_no_number_harms_nothing", "test_nested_values_and_numbers_as_keys_arrive_flat")
class TakesNumbersOnly(InMemoryReporter):
    def on_log(self, args, state, control, logs=None, **kwargs):
        numbers = {key: float(value) for key, value in logs.items()}
        super().on_log(args, state, control, logs=numbers, **kwargs)


@breaks("test_what_is_no_number_harms_nothing")
class CountsNothingAsZero(InMemoryReporter):
    def on_log(self, args, state, control, logs=None, **kwargs):
        super().on_log(args, state, control, logs={key: value or 0 for key, value in logs.items()}, **kwargs)


@breaks("test_any_value_may_be_an_argument")
class RefusesANanAmongParams(InMemoryReporter):
    def log_params(self, params):
        json.dumps(dict(params), allow_nan=False)
        super().log_params(params)


@breaks("test_values_under_any_keys_arrive_and_stay_apart")
class RenamesKeys(InMemoryReporter):
    def log_points(self, points):
        for point in points:
            values = {"".join(filter(str.isalnum, key)): value for key, value in point.values.items()}
            self.run.points += [(key, point.step, value) for key, value in values.items()]


@breaks("test_no_key_leads_out_of_the_folder")
class KeepsAFileForEachKey(InMemoryReporter):
    key_style = "raw"
    limits = Limits(key_length=100)

    def log_points(self, points):
        super().log_points(points)
        for key in (key for point in points for key in point.values if not key.startswith("/")):
            path = Path("metrics", key + ".txt")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")


@breaks("test_nothing_that_belongs_to_the_loop_is_changed")
class TakesValuesOutOfTheLogs(InMemoryReporter):
    def on_log(self, args, state, control, logs=None, **kwargs):
        super().on_log(args, state, control, logs=logs, **kwargs)
        logs.pop("total_flos", None)


@breaks("test_nothing_that_belongs_to_the_loop_is_changed")
class HidesSecretsInPlace(InMemoryReporter):
    def setup(self, args, state, model, **kwargs):
        args.lr_scheduler_kwargs["nested"]["hub_token"] = "***"


@breaks("test_nothing_that_belongs_to_the_loop_is_changed")
class ConvertsTensorsInPlace(InMemoryReporter):
    def on_log(self, args, state, control, logs=None, **kwargs):
        for key, value in logs.items():
            logs[key] = value.item() if hasattr(value, "tolist") and math.prod(value.shape) == 1 else value
        super().on_log(args, state, control, logs=logs, **kwargs)


@breaks("test_nothing_that_belongs_to_the_loop_is_changed")
class AddsToTheConfig(InMemoryReporter):
    def setup(self, args, state, model, **kwargs):
        model.config.run_name = "mine"


@breaks("test_nothing_that_belongs_to_the_loop_is_changed")
class StopsTheTraining(InMemoryReporter):
    def on_evaluate(self, args, state, control, **kwargs):
        super().on_evaluate(args, state, control, **kwargs)
        control.should_training_stop = True


# ---- failure --------------------------------------------------------------------------------------------------------


@breaks("test_a_tracker_that_the_user_named_and_that_refuses_ends_the_program")
class SwallowsARefusal(InMemoryReporter):
    def _refused(self, error):
        logging.warning("in_memory does not start")


@breaks(
    "test_a_tracker_that_nobody_named_and_that_refuses_is_left_out", "test_a_server_that_cannot_be_reached_ends_nothing"
)
class TakesEachRefusalForFinal(InMemoryReporter):
    def _refused(self, error):
        raise StartError(f"in_memory cannot start ({error}).")


@breaks("test_after_a_refusal_the_next_training_starts_anew")
class IsSilentForEverAfterARefusal(InMemoryReporter):
    was_refused = False

    def _refused(self, error):
        self.was_refused = True

    def _is_reporting_process(self, state):
        return not self.was_refused and super()._is_reporting_process(state)


class HasItsOwnDelivery(InMemoryReporter):
    """Its calls go through a door of its own."""

    door = Delivery

    def _join(self, *args):
        session = super()._join(*args)
        session.delivery = self.door(self)
        return session


@breaks("test_an_operation_that_always_fails_is_one_warning_and_costs_nothing_else")
class WarnsEachTime(HasItsOwnDelivery):
    class door(Delivery):
        def warn_once(self, about, message, *values):
            logging.warning(message, *values)


@breaks("test_an_operation_that_always_fails_is_one_warning_and_costs_nothing_else")
class FailsSilently(HasItsOwnDelivery):
    class door(Delivery):
        def warn_once(self, about, message, *values):
            pass


@breaks(
    "test_an_operation_that_always_fails_is_one_warning_and_costs_nothing_else",
    "test_a_batch_that_fails_costs_no_other",
)
class LetsFailuresThrough(HasItsOwnDelivery):
    class door(Delivery):
        def call(self, operation, *arguments):
            return getattr(self.reporter, operation)(*arguments)


@breaks("test_a_batch_that_fails_costs_no_other")
class GivesUpAtTheFirstFailure(HasItsOwnDelivery):
    class door(Delivery):
        has_failed = False

        def call(self, operation, *arguments):
            result = FAILED if self.has_failed else super().call(operation, *arguments)
            self.has_failed = result is FAILED
            return result


# ---- secrets --------------------------------------------------------------------------------------------------------


@breaks("test_no_secret_reaches_the_tracker_a_file_or_the_console")
class ReportsTheCommandLine(InMemoryReporter):
    def log_params(self, params):
        super().log_params({**params, "command": sys.argv})


@breaks("test_no_secret_reaches_the_tracker_a_file_or_the_console")
class WritesTheArgumentsToAFile(InMemoryReporter):
    def setup(self, args, state, model, **kwargs):
        Path("args.txt").write_text(str(args))


@breaks("test_no_secret_reaches_the_tracker_a_file_or_the_console")
class NamesAFileLikeTheRun(InMemoryReporter):
    def setup(self, args, state, model, **kwargs):
        Path(str(args.run_name)).touch()


@breaks("test_no_secret_reaches_the_tracker_a_file_or_the_console")
class SaysWhatHasFailed(InMemoryReporter):
    def on_exception(self, *args, exception=None, **kwargs):
        super().on_exception(*args, exception=exception, **kwargs)
        logging.warning("%s", exception)


# ---- the class ------------------------------------------------------------------------------------------------------


@breaks("test_importing_the_integration_imports_no_sdk_and_says_nothing")
class HasAnSdkThatIsImportedAlready(InMemoryReporter):
    sdk = "json"


@breaks("test_an_unknown_option_is_a_type_error")
class TakesAnyOption(InMemoryReporter):
    def __init__(self, **options):
        Reporter.__init__(self)


@breaks("test_it_says_whether_it_is_configured")
class LacksAKey(InMemoryReporter):
    def configured(self):
        return Configured(False, "IN_MEMORY_API_KEY is not set")


@breaks("test_it_is_registered_under_its_own_name")
class IsRegisteredUnderAnotherName(InMemoryContract):
    @pytest.fixture(autouse=True)
    def _install(self, folder, monkeypatch):
        install("inmemory", "in_memory:InMemoryReporter", folder, monkeypatch)


@breaks("test_it_is_registered_under_its_own_name")
class IsNotRegistered(InMemoryContract):
    @pytest.fixture(autouse=True)
    def _install(self, folder, monkeypatch):
        install("other", "another_package:Reporter", folder, monkeypatch)


def install(name, target, folder, monkeypatch):
    """Let `folder` look like an environment in which `in_memory` is installed with one entry point, and use it."""
    info = folder / "trackside_in_memory-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: trackside-in-memory\nVersion: 1.0\n")
    (info / "RECORD").write_text("in_memory/py.typed,,\n")
    (folder / "in_memory").mkdir()
    (folder / "in_memory" / "py.typed").touch()
    (info / "entry_points.txt").write_text(f"[trackside.reporters]\n{name} = {target}\n")
    monkeypatch.syspath_prepend(folder)
