import os
os.environ['TNG_LOG_LEVEL'] = '0'
