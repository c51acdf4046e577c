"""What is said of certificates that are refused."""

import pytest

from quire.security.refusals import ALERTS, FAULTS, of_certificate, of_errors

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize("number", sorted(FAULTS))
def test_a_finding_names_the_certificate_and_a_step(number: int) -> None:
    """Subject, what is wrong, and after the semicolon what to do."""
    text = of_certificate(number, 0, "CN=b1", "2026-01-31")
    what, step = FAULTS[number]
    assert text.startswith(f"its certificate (CN=b1) {what}")
    assert text.endswith(f"; {step}")


def test_the_day_is_told_when_it_matters() -> None:
    """An expired one has a date; an authority's is told apart; an unknown number is named."""
    assert "has expired on 2026-01-31" in of_certificate(10, 0, "CN=b1", "2026-01-31")
    assert of_certificate(10, 1, "CN=ca", "2026-01-31").startswith("the certificate of its authority (CN=ca)")
    assert "error 99" in of_certificate(99, 0, "CN=b1", "2026-01-31")


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_an_alert_in_each_spelling(alert: str) -> None:
    """OpenSSL's releases name alerts differently."""
    for prefix in ("sslv3 alert", "tlsv1 alert", "tlsv13 alert", "ssl/tls alert"):
        text = of_errors([("SSL routines", "", f"{prefix} {alert}")])
        assert text == f"it refused us: {ALERTS[alert][0]}; {ALERTS[alert][1]}"


def test_other_failures() -> None:
    """A missing certificate, an unknown alert, bytes that are no TLS, nothing at all."""
    assert "showed no certificate" in of_errors([("SSL routines", "", "peer did not return a certificate")])
    assert "it says: odd" in of_errors([("SSL routines", "", "tlsv1 alert odd")])
    assert "(wrong version number)" in of_errors([("SSL routines", "", "wrong version number")])
    assert "no reason given" in of_errors([])
