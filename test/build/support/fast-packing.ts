/**
 * Environment of a build whose packages need not be small: the compression of shipped packages takes most of the time.
 */
export const fastPacking: NodeJS.ProcessEnv = { ...process.env, DPKG_DEB_COMPRESSOR_TYPE: "none" };
