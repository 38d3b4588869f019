"use strict";

/**
 * cron-parser and the luxon under it take 7 MiB and tens of milliseconds, so it is loaded when the first range or step is
 * read, not with the daemon. CommonJS is the one way to do that at once, and the bundler follows it too.
 */
exports.loadCronParser = () => require("cron-parser").CronExpressionParser;
