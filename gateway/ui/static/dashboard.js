// What pages do with a script: times in the viewer's zone, and calls that wait for a person.
// Without it times are UTC, and the list is as old as the page.
(function () {
  "use strict";

  const SOUND = "mnemogate-approval-sound"; // kept by this browser: "off" for none
  const shape = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  let waiting = 0;
  let audio = null;

  function showTimes(root) {
    for (const element of root.querySelectorAll("time[data-time]")) {
      const at = new Date(element.getAttribute("datetime"));
      if (isNaN(at)) continue;
      const local = shape.format(at);
      if (element.dataset.time === "moment") {
        if (!element.title) element.title = element.textContent;
        element.textContent = local;
      } else {
        element.title = local;
      }
    }
  }

  function isOn() {
    return localStorage.getItem(SOUND) !== "off";
  }

  function beep() {
    audio = audio || new AudioContext();
    const tone = audio.createOscillator();
    const volume = audio.createGain();
    tone.frequency.value = 660;
    volume.gain.setValueAtTime(0.15, audio.currentTime);
    volume.gain.exponentialRampToValueAtTime(0.001, audio.currentTime + 0.4);
    tone.connect(volume).connect(audio.destination);
    tone.start();
    tone.stop(audio.currentTime + 0.4);
  }

  // Browsers play nothing before the first click or key.
  function wake() {
    if (audio && audio.state === "suspended") audio.resume();
  }

  function countWaiting() {
    const shown = document.getElementById("approvals-waiting");
    if (!shown) {
      waiting = 0;
      return;
    }
    const count = Number(shown.dataset.waiting);
    const title = document.title.replace(/^\(\d+\) /, "");
    document.title = count ? "(" + count + ") " + title : title;
    if (count > waiting && isOn()) beep();
    waiting = count;
  }

  function openPage() {
    const shown = document.getElementById("approvals-waiting");
    const box = document.getElementById("approval-sound");
    waiting = shown ? Number(shown.dataset.waiting) : 0;
    if (!box) return;
    box.checked = isOn();
    box.closest("label").hidden = false;
  }

  function changeSound(event) {
    if (event.target.id !== "approval-sound") return;
    localStorage.setItem(SOUND, event.target.checked ? "on" : "off");
    if (event.target.checked) beep();
  }

  function start() {
    showTimes(document);
    openPage();
    document.addEventListener("change", changeSound);
    document.addEventListener("pointerdown", wake);
    document.addEventListener("keydown", wake);
    document.addEventListener("htmx:load", function (event) {
      showTimes(event.target);
      if (event.target.querySelector("#approval-sound")) openPage();
    });
    document.addEventListener("htmx:sseMessage", countWaiting);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
