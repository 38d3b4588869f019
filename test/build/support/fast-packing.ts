/** Environment of a build whose packages need not be small: to pack them as tightly as what is shipped takes most of its time. */
export const fastPacking: NodeJS.ProcessEnv = { ...process.env, DPKG_DEB_COMPRESSOR_TYPE: "none" };
