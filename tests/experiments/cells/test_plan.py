"""Plans of sweeps: which cells a file asks for, and what is said of one that cannot be used."""

import pytest

from experiments.cells.plan import read_plan

GOOD = {
    "experiment": '"regression"',
    "datasets": '["diabetes", "boston"]',
    "splits": "[0, 3]",
    "models": '["GPR", "SGPR", "PEPR"]',
    "alphas": "[0, 0.5]",
    "M": "[10, 20]",
}


@pytest.fixture
def write(tmp_path):
    def write(table="", **changes):
        lines = [f"{key} = {value}" for key, value in {**GOOD, **changes}.items() if value is not None]
        path = tmp_path / "sweep.toml"
        path.write_text("\n".join([*lines, *(["[options]", table] if table else [])]))
        return path

    return write


def test_every_one_with_every_other(write):
    cells = read_plan(write("maxiter = 5", settings='"S4"', seed="7"))
    # two sets and splits: the exact GP once, SGPR with each M, PEPR with each alpha and M
    assert len(cells) == 2 * 2 * (1 + 2 + 4) == len({cell.key for cell in cells})
    common = {"dataset": "diabetes", "split": 0, "seed": 7, "maxiter": 5}
    first = [cell.updates for cell in cells if cell.updates["dataset"] == "diabetes" and cell.updates["split"] == 0]
    assert first == [
        common | {"model": "GPR"},
        *(common | {"model": "SGPR", "M": M} for M in (10, 20)),
        *(common | {"model": "PEPR", "alpha": alpha, "M": M} for alpha in (0.0, 0.5) for M in (10, 20)),
    ]
    assert {(cell.experiment, cell.settings) for cell in cells} == {("regression", "S4")}


def test_classification(write):
    changes = {"experiment": '"classification"', "datasets": '["pima", "glass"]', "models": '["SVGP", "PEP"]'}
    assert len(read_plan(write(**changes))) == 2 * 2 * (2 + 4)


def test_the_same_number_is_the_same_cell(write):
    whole, real = (read_plan(write(alphas=alphas)) for alphas in ("[0, 1]", "[0.0, 1.0]"))
    assert [cell.key for cell in whole] == [cell.key for cell in real]


def test_a_bad_plan_is_rejected_in_one_sentence(write):
    for changes, message in [
        (
            {"model": '["PEPR"]'},
            "unknown key 'model'; accepted are experiment, datasets, splits, models, alphas, M,",
        ),
        ({"M": None}, "missing key 'M'; required are experiment, datasets"),
        ({"experiment": '"streaming"'}, "experiment is 'streaming'; accepted are regression, classification"),
        ({"datasets": '["bostn"]'}, "datasets has 'bostn'; accepted are .*boston, "),
        ({"datasets": '["banana"]'}, "datasets has 'banana'; accepted are .*boston, "),
        ({"datasets": "[]"}, r"datasets is \[\]; a list of at least one is accepted, of .*boston"),
        ({"datasets": '"boston"'}, "datasets is 'boston'; a list of at least one"),
        ({"splits": "3"}, "splits is 3; a list of at least one is accepted, of whole numbers from 0 to 19"),
        ({"splits": "[20]"}, "splits has 20; accepted are whole numbers from 0 to 19"),
        ({"splits": "[true]"}, "splits has True; accepted are whole"),
        ({"models": '["PEP"]'}, "models has 'PEP'; accepted are GPR, SGPR, GPRFITC, PEPR"),
        ({"models": '["SGPR", "SGPR"]'}, "models has 'SGPR' twice; each is accepted once"),
        ({"alphas": "[0.5, 1.5]"}, "alphas has 1.5; accepted are numbers from 0 to 1"),
        ({"alphas": "[1, 1.0]"}, "alphas has 1.0 twice"),
        ({"alphas": '["half"]'}, "alphas has 'half'; accepted"),
        ({"M": "[0]"}, "M has 0; accepted are whole numbers from 1"),
        ({"M": "[10.0]"}, "M has 10.0; accepted"),
        ({"settings": '"U3"'}, "settings is 'U3'; accepted are S1, S2, S3, S4"),
        ({"seed": "-1"}, "seed is -1; a whole number from 0 to 4294967295 is accepted"),
        ({"options": "3"}, "options is 3; a table of entries"),
        ({"options": "{maxitr = 3}"}, "options has a key 'maxitr'; accepted are entries of .*regression print_config"),
        ({"options": "{alpha = 0.1}"}, "options has a key 'alpha'; .* other than dataset, split, model, alpha, M"),
        ({"options": '{"gp.M" = 3}'}, "options has a key 'gp.M'"),
        ({"options": "{gp = {kernel = 3}}"}, "options has a key 'gp'"),
        ({"options": "{maxiter = [3]}"}, r"options has maxiter = \[3\]; a string, a number, true or false is accepted"),
        ({"M": "[10]\nM = [20]"}, "is not TOML: Cannot overwrite a value"),
    ]:
        path = write(**changes)
        with pytest.raises(ValueError, match=message) as raised:
            read_plan(path)
        text = str(raised.value)
        assert text.startswith(f"{path}") and text.endswith(".") and "\n" not in text


def test_full_names_are_accepted(write):
    assert read_plan(write('"gp.kernel" = "Matern32"'))[0].updates["gp.kernel"] == "Matern32"


def test_no_file(tmp_path):
    with pytest.raises(OSError, match=r"sweep\.toml"):
        read_plan(tmp_path / "sweep.toml")
