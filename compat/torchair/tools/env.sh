# Source it: programs that import torchair find tensortap's, in this shell and whatever it starts.
export TENSORTAP_COMPAT=1
