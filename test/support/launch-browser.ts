/** A browser without what takes its time and is no part of a page. */
import { chromium, type Browser } from "playwright-core";
import { cheapBrowserPath } from "./browser.ts";

/**
 * With each page Chromium opens a window, and for what the window's address bar suggests it loads a page of its own, of four
 * hundred files: that takes longer than the pages under test.
 */
const addressBar = ["WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "WebUIOmniboxFullPopup"];
/** With each page Chromium starts a process for a further one, too, which never comes. */
const processAhead = ["SpareRendererForSitePerProcess"];
/** Only the last of several lists counts: what Playwright has in its own. */
const unwantedByPlaywright = [
  "AimEnabled",
  "AvoidCorsURLLoaderRestartOnRedirect",
  "AvoidUnnecessaryBeforeUnloadCheckSync",
  "DestroyProfileOnBrowserClose",
  "HttpsFirstBalancedModeAutoEnable",
  "HttpsUpgrades",
  "LensOverlay",
  "MediaRouter",
  "NetworkTimeServiceQuerying",
  "OptimizationHints",
  "PaintHolding",
  "PreconnectToSearch",
  "ThirdPartyStoragePartitioning",
];

/** @param path `browserPath` for the one that people have */
export function launchBrowser(path = cheapBrowserPath): Promise<Browser> {
  const args = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    `--disable-features=${[...addressBar, ...processAhead, ...unwantedByPlaywright].join(",")}`,
  ];
  return chromium.launch({ executablePath: path ?? "", args });
}
