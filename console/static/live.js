// Fetches this page again and puts its parts that live (data-live) in the place of the old ones.
// SPDX-License-Identifier: Apache-2.0
"use strict";

const EVERY_MS = 5000;

function place(fresh) {
  for (const old of document.querySelectorAll("[data-live]")) {
    const now = fresh.getElementById(old.id);
    if (now === null || now.innerHTML === old.innerHTML) continue;
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const scrolled = [...old.querySelectorAll(".wide")].map((each) => each.scrollLeft);
    old.replaceChildren(...now.childNodes);
    old.querySelectorAll(".wide").forEach((each, at) => { each.scrollLeft = scrolled[at] ?? 0; });
    if (focused === null) continue;
    const alike = focused.getAttribute("href") ?? focused.getAttribute("aria-label");
    const again = [...old.querySelectorAll("a, [tabindex]")]
      .find((each) => alike !== null && [each.getAttribute("href"), each.getAttribute("aria-label")].includes(alike));
    again?.focus({ preventScroll: true });
  }
}

async function again() {
  const stale = document.getElementById("stale");
  if (!document.hidden) {
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      place(new DOMParser().parseFromString(await answer.text(), "text/html"));
      stale.hidden = true;
    } catch {
      stale.hidden = false;
    }
  }
  setTimeout(again, EVERY_MS);
}

if (document.querySelector("[data-live]") !== null) setTimeout(again, EVERY_MS);
