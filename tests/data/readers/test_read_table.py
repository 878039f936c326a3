import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from potluck.data.readers.tables import read_table
from potluck.errors import PotluckError

CSV = "age,sex,dose,code\n61,f,0.5,01\n47,m,1.25,02\n70,f,2,01\n"


def csv(folder, text, name="site.csv", encoding="utf-8"):
    file = folder / name
    file.write_bytes(text.encode(encoding))
    return file


def test_numbers_become_features_and_labels_stay_text(tmp_path):
    table = read_table(csv(tmp_path, CSV), ["dose", "age"], "code")
    assert table.columns == ("dose", "age")
    assert table.features.dtype == torch.float32
    assert table.features.tolist() == [[0.5, 61], [1.25, 47], [2, 70]]
    assert table.labels.tolist() == ["01", "02", "01"]


def test_by_default_every_column_but_the_label_is_a_feature(tmp_path):
    table = read_table(csv(tmp_path, "a,b,y\n1,true,no\n2,false,yes\n"), label="y")
    assert table.columns == ("a", "b")
    assert table.features.tolist() == [[1, 1], [2, 0]]
    assert read_table(csv(tmp_path, "a,b\n1,2\n")).labels is None


@pytest.mark.parametrize(
    ("name", "separator", "text"),
    [
        ("site.tsv", None, CSV.replace(",", "\t")),
        ("site.CSV", ";", CSV.replace(",", ";")),
        ("site.csv", None, "\ufeff" + CSV),
        ("site.csv", None, CSV.replace("\n", "\r\n")),
    ],
)
def test_usual_variants_of_csv_are_read_alike(tmp_path, name, separator, text):
    table = read_table(csv(tmp_path, text, name), ["age", "dose"], "code", separator)
    assert table.features.tolist() == [[61, 0.5], [47, 1.25], [70, 2]]
    assert table.labels.tolist() == ["01", "02", "01"]


def test_parquet_is_read_with_its_own_types(tmp_path):
    file = tmp_path / "site.parquet"
    columns = {
        "age": pa.array([61, 47], pa.int16()),
        "dose": pa.array([0.5, 1.25]),
        "ward": pa.array(["north", "south"]).dictionary_encode(),
        "grade": pa.array([3, 4]),
    }
    pq.write_table(pa.table(columns), file)
    table = read_table(file, ["age", "dose"], "ward")
    assert table.features.tolist() == [[61, 0.5], [47, 1.25]]
    assert table.labels.tolist() == ["north", "south"]
    assert read_table(file, ["age"], "grade").labels.tolist() == ["3", "4"]


@pytest.mark.parametrize(
    ("text", "features", "label", "message"),
    [
        (CSV, ["age", "sex"], "code", r'"sex" has text \(row 1: "f"\).*must be numbers'),
        ("a\n1\n2\nunknown\n", ["a"], None, r'column "a" has text \(row 3: "unknown"\)'),
        (CSV, ["agee"], "code", 'unknown column "agee"; did you mean "age"'),
        (CSV, ["age"], "cod", 'unknown column "cod"; did you mean "code"'),
        (CSV, ["age", "code"], "code", '"code" is the label and cannot be a feature'),
        (CSV, [], "code", "no column is left"),
        ("y\na\n", None, "y", "no column is left"),
        ("a,b\n1,2\n,3\n4,NA\n,5\n", None, None, r'"a" has no value in 2 of 4 rows: 2, 4 \('),
        ("a,b\n1,2\n3,nan\n", None, None, '"b" has no value in 1 of 2 rows: 2 '),
        ("a,b\n1,\n3,\n", None, None, 'column "b" is empty'),
        ("a,b\n1,2\n3,1e300\n", None, None, '"b" is infinite or too large .*: 2 '),
        ("a,b\n1,-inf\n", None, None, '"b" is infinite'),
        ("a,y\n1,no\n2,\n3,  \n", None, "y", r'"y" has no value in 2 of 3 rows: 2, 3 \('),
        ("a\n" + "\n".join(["NA"] * 6 + ["1"]), None, None, r"6 of 7 rows: 1, 2, 3, 4, 5, … \("),
        ("a,a\n1,2\n", None, None, 'more than one column called "a"'),
        ("a;b\n1;2\n", None, None, "separated by semicolons"),
        ("a,b\n1,2\n3\n", None, None, "cannot be read as a table: .*Expected 2 columns"),
        ("a,b\n", None, None, "has no rows, only the column names a, b"),
        ("", None, None, "cannot be read as a table: Empty CSV file"),
    ],
)
def test_what_cannot_be_used_is_named_with_file_column_and_rows(
    tmp_path, text, features, label, message
):
    with pytest.raises(PotluckError, match=rf"site\.csv.*{message}"):
        read_table(csv(tmp_path, text), features, label)


def test_a_label_may_be_called_NA(tmp_path):
    assert read_table(csv(tmp_path, "a,y\n1,NA\n"), label="y").labels.tolist() == ["NA"]


@pytest.mark.parametrize("text", ["größe,y\n1,a\n", "a,y\n1,größe\n"])
def test_a_file_that_is_not_utf8_is_refused(tmp_path, text):
    with pytest.raises(PotluckError, match="cannot be read as a table"):
        read_table(csv(tmp_path, text, encoding="latin-1"), label="y")


def test_parquet_columns_without_numbers_or_text_are_refused(tmp_path):
    file = tmp_path / "site.parquet"
    columns = {"a": pa.array([[1], [2]]), "b": pa.array([1, 2]), "c": pa.array(["1", "2"])}
    pq.write_table(pa.table(columns), file)
    with pytest.raises(PotluckError, match='"a" has values of the kind "list'):
        read_table(file, ["a"])
    with pytest.raises(PotluckError, match='column "a" is not text'):
        read_table(file, ["b"], "a")
    with pytest.raises(PotluckError, match=r'"c" has text \(row 1: "1"\)'):
        read_table(file, ["c"])


def test_files_that_are_no_tables_are_refused(tmp_path):
    with pytest.raises(PotluckError, match=r'site\.csv" does not exist'):
        read_table(tmp_path / "site.csv")
    with pytest.raises(PotluckError, match=r"must end in \.csv, \.tsv, \.parquet, \.pq"):
        read_table(csv(tmp_path, CSV, "site.xlsx"))
    with pytest.raises(PotluckError, match="cannot be read as a table"):
        read_table(csv(tmp_path, CSV, "site.parquet"))
    with pytest.raises(PotluckError, match="cannot be read as a table"):
        read_table(csv(tmp_path, CSV), separator="::")


def test_labels_are_a_plain_text_array(tmp_path):
    assert read_table(csv(tmp_path, CSV), ["age"], "code").labels.dtype.kind == np.dtype("U").kind
