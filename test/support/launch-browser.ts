/** A browser without slow features that are not part of a page. */
import { chromium, type Browser } from "playwright-core";
import { cheapBrowserPath } from "./browser.ts";

/**
 * With each page Chromium opens a window, and loads a page of four hundred files for the suggestions of its address
 * bar, which takes longer than the pages under test.
 */
const addressBar = ["WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "WebUIOmniboxFullPopup"];
/** With each page Chromium starts a spare process for a further one. */
const processAhead = ["SpareRendererForSitePerProcess"];
/** Only the last of several lists counts, so this one includes Playwright's own. */
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

/** @param path `browserPath` for the browser that users have */
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
