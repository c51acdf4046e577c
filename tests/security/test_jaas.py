"""Names and passwords from JAAS files: what Apache's files have, and errors that show the line and no password."""

from pathlib import Path

import pytest

from quire.conf.properties import ConfigurationError
from quire.security.jaas import FILE_BYTES_MAX, MODULE, Account, account, parse, users

# SPDX-License-Identifier: Apache-2.0

# As in Apache's own tests (jaas_md5.conf), with the comments that such a file may have.
APACHES = """/* Licensed
 to the ASF */
Bookie {
    // users
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_hd="testpwd"
    user_bob="bob's \\"word\\" \\\\ {};=//";
};
BookKeeper {
       org.apache.zookeeper.server.auth.DigestLoginModule REQUIRED
       username="hd"
       password="testpwd";
};
Server {
    com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/etc/krb5.keytab";
};
"""
SECRET = "hunter2"


def file(where: Path, text: str | bytes) -> str:
    path = where / "jaas.conf"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_both_sections_of_a_file(tmp_path: Path) -> None:
    """Marks inside quotation marks are the password's."""
    path = file(tmp_path, APACHES)
    assert users(path, "Bookie") == {"hd": "testpwd", "bob": 'bob\'s "word" \\ {};=//'}
    assert account(path, "BookKeeper") == Account("hd", "testpwd")


def test_names_and_passwords_of_other_scripts(tmp_path: Path) -> None:
    """The file is UTF-8; a name that is no word is in quotation marks."""
    path = file(tmp_path, f'B {{ {MODULE} required "user_zoë b"="пароль"; }};')
    assert users(path, "B") == {"zoë b": "пароль"}


def test_nothing_shows_a_password() -> None:
    """Neither the account nor what the parser makes."""
    sections = parse(f'B {{ {MODULE} required username="hd" password="{SECRET}"; }};', "jaas.conf")
    assert SECRET not in repr(sections)
    assert SECRET not in repr(Account("hd", SECRET))


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (f'B {{\n {MODULE} required\n user_a="{SECRET}"\n}};', 4, "expected an option, or ;"),
        (f'B {{\n {MODULE} required\n user_a="{SECRET}";\n}}', 4, "expected ; after the }"),
        (f'B {{\n {MODULE} required\n user_a="{SECRET};\n}};', 3, "does not end"),
        (f'B {{\n {MODULE} required\n user_a={SECRET}";\n}};', 3, "does not end"),
        (f"B {{\n {MODULE} required\n user_a {SECRET};\n}};", 3, "expected = after"),
        (f"B {{\n {MODULE} required\n user_a={SECRET};{SECRET};\n}};", 3, "expected one of optional"),
        (f"B {{\n {MODULE} required\n user_a=!{SECRET};\n}};", 3, "in quotation marks"),
        (f'B {{\n {MODULE} required\n user_a="{SECRET}\\n";\n}};', 3, "does not end"),
        (f'B {{\n {MODULE} required\n user_a="${{{SECRET}}}";\n}};', 3, "which Java replaces"),
        (f'B {{\n {MODULE} required\n user_a="{SECRET}"\n user_a="{SECRET}";\n}};', 4, "option is there a second"),
        (f'B {{\n {MODULE} {SECRET}\n user_a="{SECRET}";\n}};', 2, "expected one of optional"),
        (f'B {{\n {SECRET} required\n user_a="{SECRET}";\n}};', 2, "login module that is not served"),
        (f'B {{\n {MODULE} required\n username="a" password="{SECRET}";\n}};', 2, "is not user_NAME"),
        (f'B {{\n {MODULE} required\n user_="{SECRET}";\n}};', 2, "is not user_NAME"),
        (f"B {{\n {MODULE} required;\n}};", 2, "has no user"),
        ("B {\n};\nB {\n};", 3, "section is there a second time"),
        ("/* \n", 1, "does not end"),
        ("{", 1, "expected the name of a section"),
        (b"B {\n \xff };", 2, "not UTF-8"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str | bytes, line: int, said: str) -> None:
    """And nothing of a password, wherever it slipped to."""
    path = file(tmp_path, text)
    with pytest.raises(ConfigurationError, match=said) as failure:
        users(path, "B")
    assert str(failure.value).startswith(f"{path}:{line}: ")
    assert SECRET not in str(failure.value)


def test_a_file_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    """Who may is let in by a line of his own."""
    path = file(tmp_path, f'B {{\n {MODULE} required\n user_a="{SECRET}";\n}};')
    Path(path).chmod(0o662)
    with pytest.raises(ConfigurationError, match="chmod o-w") as failure:
        users(path, "B")
    assert path in str(failure.value)
    Path(path).chmod(0o660)
    assert users(path, "B") == {"a": SECRET}


@pytest.mark.parametrize(
    "options", ["", 'username="a"', f'password="{SECRET}"', f'username="" password="{SECRET}"',
                f'username="a" password="{SECRET}" user_b="{SECRET}"'],
)  # fmt: skip
def test_a_clients_section_is_whole(tmp_path: Path, options: str) -> None:
    """A name and a password, and nothing else."""
    path = file(tmp_path, f"C {{ {MODULE} required {options}; }};")
    with pytest.raises(ConfigurationError, match="username") as failure:
        account(path, "C")
    assert SECRET not in str(failure.value)


def test_sections_that_are_not_there(tmp_path: Path) -> None:
    """Those that are there are named; so are two modules, an empty section and a missing file."""
    path = file(tmp_path, APACHES + f"Two {{ {MODULE} required; {MODULE} required; }}; None {{ }};")
    with pytest.raises(ConfigurationError, match="no section Auditor; its sections: Bookie, BookKeeper"):
        account(path, "Auditor")
    with pytest.raises(ConfigurationError, match="section Two has 2 login modules"):
        account(path, "Two")
    with pytest.raises(ConfigurationError, match="section None has 0 login modules"):
        account(path, "None")
    with pytest.raises(ConfigurationError, match=r"jaas\.conf has more than"):
        users(file(tmp_path, b" " * (FILE_BYTES_MAX + 1)), "B")
    with pytest.raises(ConfigurationError, match="No such file"):
        users(str(tmp_path / "nothing"), "B")
