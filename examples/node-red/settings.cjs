/** Node-RED's settings file: https://nodered.org/docs/user-guide/runtime/settings-file */
const env = process.env;
const password = env["NODE_RED_ADMIN_PASSWORD"] ?? "";
const credentialSecret = env["NODE_RED_CREDENTIAL_SECRET"] ?? "";

module.exports = {
  uiPort: Number(env["NODE_RED_PORT"] ?? 1880),
  uiHost: env["NODE_RED_HOST"] ?? "127.0.0.1",
  flowFile: "flows.json",
  flowFilePretty: true,
  ...(credentialSecret !== "" && { credentialSecret }),
  ...(password !== "" && { adminAuth: { type: "credentials", users: [admin(password)] } }),
  editorTheme: {
    header: { title: env["NODE_RED_TITLE"] ?? "Node-RED" },
    tours: false,
  },
  telemetry: { enabled: false },
};

/** @param {string} clearText */
function admin(clearText) {
  return { username: "admin", password: require("bcryptjs").hashSync(clearText, 10), permissions: "*" };
}
