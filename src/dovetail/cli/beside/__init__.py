"""How guard and drive are assembled and started."""
